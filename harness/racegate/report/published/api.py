"""The Python API as a page, from docstrings: `python -m racegate.report.published.api docs/api.md`
writes it.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import racegate
from racegate.report.templating import render
from racegate.scenario.outside.text import printable_lines


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiEntry:
    """A public name. call: its signature, empty for a class; text: paragraphs; example: lines that
    a session would show
    """

    name: str
    call: str
    text: str
    example: str


def functions() -> list[ApiEntry]:
    """What can be called, in the order in which it is defined: examples build on one another."""
    return [described(name, value) for name, value in _named() if inspect.isfunction(value)]


def classes() -> list[ApiEntry]:
    """What is given and returned."""
    return [described(name, value) for name, value in _named() if inspect.isclass(value)]


def _named() -> Iterator[tuple[str, Callable[..., object]]]:
    found = {name: getattr(racegate, name) for name in racegate.__all__}
    yield from sorted(found.items(), key=lambda pair: _place(pair[1]))


def _place(value: Callable[..., object]) -> tuple[str, int]:
    """Where it is defined: what comes from elsewhere stands behind the calls of `public`."""
    module = inspect.getmodule(value)
    is_own = module is not None and module.__name__.endswith("repro.public")
    return ("" if is_own else value.__module__, inspect.getsourcelines(value)[1])


def described(name: str, value: Callable[..., object]) -> ApiEntry:
    """A name with what its docstring says."""
    text, _, example = inspect.cleandoc(value.__doc__ or "").partition("\n>>> ")
    return ApiEntry(
        name=name,
        call=_signature(value) if inspect.isfunction(value) else "",
        text=text.strip(),
        example=f">>> {example}".rstrip() if example else "",
    )


def _signature(value: Callable[..., object]) -> str:
    signature = re.sub(r"'([^']+)'", r"\1", str(inspect.signature(value)))
    return f"racegate.{value.__name__}{signature}"


def page() -> str:
    """The page docs/api.md."""
    return render("api.md.j2", functions=functions(), classes=classes())


def main(target: Path) -> None:
    """Writes the page."""
    target.write_text(printable_lines(page()), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
