"""Programs of ranks by name, each with what a run of it has to say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module

THEMES = ("waits", "groups", "messages", "memory", "splits", "asking", "training", "graphs")


class Expected(StrEnum):
    """What is found. FAILS: nothing, and the script fails by itself."""

    SILENT = "silent"
    CONFLICT = "conflict"
    MISMATCH = "mismatch"
    DEADLOCK = "deadlock"
    ORDER = "order"
    FAILS = "fails"


Body = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class RankProgram:
    """A program: what it does as one rank of so many, and what is found."""

    name: str
    theme: str
    ranks: int
    expected: Expected
    body: Body


PROGRAMS: dict[str, RankProgram] = {}


def program(expected: Expected, *, ranks: int = 2) -> Callable[[Body], Body]:
    """Registers a function of the rank and the number of ranks."""

    def register(body: Body) -> Body:
        theme = body.__module__.rpartition(".")[2]
        PROGRAMS[body.__name__] = RankProgram(body.__name__, theme, ranks, expected, body)
        return body

    return register


def load() -> dict[str, RankProgram]:
    """All of them."""
    for theme in THEMES:
        import_module(f"rank_programs.{theme}")
    return PROGRAMS
