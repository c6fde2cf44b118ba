"""Landings of operations, and the runs that try them, whatever the target.

A landing is a hold: an operation completes no earlier than an access that it races. Which landings
there are says a source, an iterator of holds that may look at the runs made so far: the pairs of a
conflict, the gaps of the run in which an operation is held as long as it can be, all combinations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, product
from math import prod
from typing import Generic, TypeVar

import msgspec

from racegate.history.schedule import Hold, Holds
from racegate.history.verdict import Reach, Tried

SMALLER_MAX = 64  # runs for making one set of holds smaller, beyond those of the search
T = TypeVar("T")


class LandingRun(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One run under holds, read by its target.

    polls: how often completion queries were first answered "not ready"; what: came of the run
    is_decided: it came to an end that says something about the program
    is_realised: each of its holds kept its operation back
    is_harmful: it observed something else than the run without holds, or was wrong by itself
    missing: in words, what it leaves open
    """

    holds: Holds
    polls: int = 0
    what: T
    is_decided: bool
    is_realised: bool
    is_harmful: bool
    missing: tuple[str, ...] = ()

    @property
    def has_landed(self) -> bool:
        """Whether it did what its holds say, and came to an end."""
        return self.is_decided and self.is_realised


class LandingRuns(Generic[T]):
    """The runs of one search, each made once.

    make: one run under holds, with one of the answers to completion queries
    runs_max: after so many the search is spent; answers: to completion queries, each of them tried
    on_run: told after each run how many were made, and how many may be
    """

    def __init__(
        self,
        make: Callable[[Holds, int], LandingRun[T]],
        *,
        runs_max: int,
        answers: Sequence[int] = (0,),
        on_run: Callable[[int, int], None] = lambda made, most: None,
    ) -> None:
        self._make = make
        self._answers = answers
        self._on_run = on_run
        self.runs_max = runs_max
        self.made: dict[tuple[Holds, int], LandingRun[T]] = {}

    @property
    def is_spent(self) -> bool:
        """Whether as many runs were made as may be."""
        return len(self.made) >= self.runs_max

    @property
    def held(self) -> list[LandingRun[T]]:
        """All that held something, in the order in which they were made."""
        return [attempt for attempt in self.made.values() if attempt.holds]

    def under(self, holds: Holds, polls: int = 0) -> LandingRun[T]:
        """The run under these holds, from before if it was made."""
        if (holds, polls) not in self.made:
            self.made[holds, polls] = self._make(holds, polls)
            self._on_run(len(self.made), self.runs_max)
        return self.made[holds, polls]

    def every(self, source: Iterable[Holds]) -> bool:
        """Tries all landings of a source; whether there were runs enough for it."""
        for holds in source:
            if self.is_spent:
                return False
            self.under(holds)
        return True

    def first_harm(self, source: Iterable[Holds]) -> LandingRun[T] | None:
        """Tries landings of a source, with each answer to completion queries, until one does harm;
        None if none does, or the search is spent.
        """
        for holds in filter(None, source):
            for polls in self._answers:
                if not self.is_spent and self.under(holds, polls).is_harmful:
                    return self.made[holds, polls]
            if self.is_spent:
                break
        return None

    def smallest(self, harmful: LandingRun[T]) -> tuple[LandingRun[T], bool]:
        """By delta debugging (Zeller and Hildebrandt 2002): the harm with as few of its holds as
        show it, and whether none of these can be left out.
        """
        end = len(self.made) + SMALLER_MAX
        holds, polls = harmful.holds, harmful.polls
        size = max(1, len(holds) // 2)
        while len(holds) > 1:
            start, before = 0, len(holds)
            while start < len(holds):
                fewer = holds[:start] + holds[start + size :]
                if len(self.made) >= end:
                    return self.made[holds, polls], False
                if fewer and self.under(fewer, polls).is_harmful:
                    holds = fewer
                else:
                    start += size
            if size == 1 and len(holds) == before:
                break
            size = max(1, size // 2)
        return self.made[holds, polls], True

    def tried(self, reach: Reach, *, known: int = 0) -> Tried:
        """What a verdict may rest on: runs that did what their holds say. known: as of `Tried`"""
        landed = [attempt for attempt in self.held if attempt.has_landed]
        if reach is Reach.EACH_ALONE:
            landed = [attempt for attempt in landed if len(attempt.holds) == 1]
        return Tried(reach=reach, number=len(landed), known=known)


def longest(operations: Iterable[str]) -> Holds:
    """All of these operations held as long as each of them can be."""
    return tuple(Hold(op=operation) for operation in operations)


def combined(landings: Mapping[str, Sequence[str]]) -> Iterator[Holds]:
    """Every combination of landings, few holds first. landings: of each operation, its points"""
    for count in range(1, len(landings) + 1):
        for operations in combinations(landings, count):
            for untils in product(*(landings[operation] for operation in operations)):
                pairs = zip(operations, untils, strict=True)
                yield tuple(Hold(op=operation, until=until) for operation, until in pairs)


def number_of(landings: Mapping[str, Sequence[str]]) -> int:
    """How many combinations there are."""
    return prod(1 + len(untils) for untils in landings.values()) - 1
