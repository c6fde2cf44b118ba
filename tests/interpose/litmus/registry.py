"""What a litmus program states about itself, and the list of all of them.

A program is an ordinary function of no arguments, written as a user of PyTorch would write it. It
hands what must not depend on the schedule to `observe`, which returns the value and does nothing
else until a driver binds it.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")
Body = Callable[[], None]
Observer = Callable[[str, object], object]

N = 1024  # elements of the buffers; small enough that every program ends in milliseconds


class Expected(enum.Enum):
    """The verdict of the ordering oracle on one run."""

    RACY = "racy"
    SILENT = "silent"


@dataclass(frozen=True, slots=True)
class Program:
    """One litmus program; programs of one pair differ in what repairs the race.

    `observable`: some order of operations (kernels, copies or halves of them, nodes of a graph,
    host accesses) that the program's own edges allow changes an observation. False on every silent
    program, and on a race that only rewrites equal bytes, touches a value that nobody uses, or
    shows only where two kernels interleave.
    """

    name: str
    pair: str
    expected: Expected
    observable: bool
    theme: str
    run: Body

    @property
    def text(self) -> str:
        """What is wrong, or why it is right: the docstring on one line."""
        return " ".join(inspect.cleandoc(self.run.__doc__ or "").split())

    @property
    def summary(self) -> str:
        """The first paragraph of the docstring, on one line."""
        return " ".join(inspect.cleandoc(self.run.__doc__ or "").split("\n\n")[0].split())


@dataclass(slots=True)
class Registry:
    """Programs by name, in the order in which their modules define them."""

    programs: dict[str, Program] = field(default_factory=dict)

    def add(self, program: Program) -> None:
        """Raises ValueError: the name is taken."""
        if program.name in self.programs:
            raise ValueError(f"two litmus programs are called {program.name}")
        self.programs[program.name] = program


@dataclass(slots=True)
class Observe:
    """Passes a value on to whoever is bound; `name` says which observation it is."""

    bound: Observer | None = None

    def __call__(self, name: str, value: T) -> T:
        """Returns `value` itself, so that a call can stand inside an expression."""
        if self.bound is not None:
            self.bound(name, value)
        return value


REGISTRY = Registry()
observe = Observe()


def racy(*, pair: str, observable: bool = True) -> Callable[[Body], Body]:
    """Registers a program whose one run holds at least one pair of conflicting accesses without an
    order.
    """
    return _registering(pair, Expected.RACY, observable=observable)


def silent(*, pair: str) -> Callable[[Body], Body]:
    """Registers a program in which every pair of conflicting accesses is ordered."""
    return _registering(pair, Expected.SILENT, observable=False)


def _registering(pair: str, expected: Expected, *, observable: bool) -> Callable[[Body], Body]:
    def register(run: Body) -> Body:
        theme = run.__module__.rpartition(".")[2]
        REGISTRY.add(Program(run.__name__, pair, expected, observable, theme, run))
        return run

    return register


# Modules of this package that hold no programs.
TOOLS = ("registry", "table")


def load() -> dict[str, Program]:
    """Imports every module of programs; needs torch, no CUDA.  Returns: the programs by name."""
    package = __name__.rpartition(".")[0]
    folder = importlib.import_module(package).__path__
    for module in sorted(found.name for found in pkgutil.iter_modules(folder)):
        if module not in TOOLS:
            importlib.import_module(f"{package}.{module}")
    return REGISTRY.programs
