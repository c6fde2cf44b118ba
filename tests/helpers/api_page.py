"""The Python API as a page, from docstrings; writes it to the file that is named (docs/api.md)."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import racegate
from racegate.report.templating import render
from racegate.scenario.untrusted.text import printable_lines


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiEntry:
    """A public name. call: its signature, empty for a class; text: paragraphs; example: lines that
    a session would show
    """

    name: str
    call: str
    text: str
    example: str


def functions(package: ModuleType) -> list[ApiEntry]:
    """What can be called, in the order in which it is defined: examples build on one another."""
    return [described(name, value) for name, value in _named(package) if inspect.isfunction(value)]


def classes(package: ModuleType) -> list[ApiEntry]:
    """What is given and returned."""
    return [described(name, value) for name, value in _named(package) if inspect.isclass(value)]


def _named(package: ModuleType) -> Iterator[tuple[str, Callable[..., object]]]:
    values = {name: getattr(package, name) for name in package.__all__}
    found = {name: value for name, value in values.items() if callable(value)}
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
    # Annotations are strings, and shown without quotes; a default that is a string keeps them.
    signature = re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(inspect.signature(value)))
    return f"racegate.{value.__name__}{signature}"


def page(package: ModuleType) -> str:
    """The page docs/api.md of a package whose `__all__` names what is public."""
    return render("api.md.j2", functions=functions(package), classes=classes(package))


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(printable_lines(page(racegate)), encoding="utf-8")
