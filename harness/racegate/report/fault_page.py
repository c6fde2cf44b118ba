"""The catalogue of seeded faults as a page (docs/faults.md): the history of each cause from the
template, the entries from the faults themselves.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from racegate.faults.catalogue import CAUSES, FAULTS, VARIANTS
from racegate.faults.fault import Fault, FaultKind, exchanged_parts
from racegate.report.templating import render

COLUMNS = 120


def fault_page() -> str:
    """The page."""
    return render(
        "faults.md.j2",
        heads=[fault for fault in FAULTS if is_head(fault)],
        chapters={cause: chapter(faults) for cause, faults in CAUSES.items()},
        variants="\n".join(item(fault) for fault in VARIANTS),
    )


def is_head(fault: Fault) -> bool:
    """Whether a fault has a heading; the forms of one cause follow it (`name:form`)."""
    return ":" not in fault.name


def chapter(faults: Iterable[Fault]) -> str:
    """The entries of one cause, in the order of their numbers."""
    entries = []
    for fault in sorted(faults, key=lambda fault: fault.number):
        heading = f"### {fault.name}\n\n" if is_head(fault) else ""
        entries.append(f"{heading}{entry(fault) if is_head(fault) else item(fault)}\n")
    return "\n".join(entries).rstrip("\n")


def entry(fault: Fault) -> str:
    """What a fault does and where it shows, as a paragraph."""
    return textwrap.fill(
        f"{fault.number}, {fault.kind}. {_told(fault)}", COLUMNS, break_on_hyphens=False
    )


def item(fault: Fault) -> str:
    """The same of a further form of a cause, or of a variant, as an item of a list."""
    text = f"* `{fault.name}`: {_told(fault)}"
    return textwrap.fill(text, COLUMNS, subsequent_indent="  ", break_on_hyphens=False)


def _told(fault: Fault) -> str:
    sentences = [f"{fault.summary[0].upper()}{fault.summary[1:]}.", f"From {fault.origin}."]
    if fault.needs:
        sentences.append(f"Needs {' '.join(fault.needs)}.")
    sentences.append(f"Form: {', '.join(_forms(fault))}.")
    sentences.append(_shown(fault))
    return " ".join((*sentences, fault.note)).rstrip()


def _shown(fault: Fault) -> str:
    """Where it shows, and under which holds; the first script is the one whose field is checked."""
    if not fault.scenarios:
        return f"Expected to differ: {fault.expect}."
    places = []
    for name in fault.scenarios:
        holds = ", ".join(f"`{text}`" for text in fault.holds.get(name, ()))
        places.append(f"`{name}`" + (f" under {holds}" if holds else ""))
    first, *others = places
    eager = " eagerly" if fault.kind is FaultKind.ORDERING and not fault.holds else ""
    text = f"First difference: `{fault.expect}` in {first}{eager}"
    return f"{text}; also {', '.join(others)}." if others else f"{text}."


def _forms(fault: Fault) -> list[str]:
    """What is wrong: edges, engine parts, kernels."""
    forms = [f"edge `{name}` dropped" for name in sorted(fault.drops)]
    if fault.moved is not None:
        forms.append(f"edge `{fault.moved.edge}` {fault.moved.operator} `{fault.moved.place}`")
    forms += [f"part `{name}`" for name in exchanged_parts(fault)]
    return [*forms, *(f"kernel `{name}`" for name in fault.kernels)]
