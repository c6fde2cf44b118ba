"""Landings of operations, and the runs that try them, whatever the target.

A landing is a hold: an operation completes no earlier than an access that it races. Which landings
there are says a source, an iterator of holds that may look at the runs made so far: the pairs of a
conflict, the gaps of the run in which an operation is held as long as it can be, all combinations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, product
from math import prod
from typing import Generic, Protocol, TypeVar

import msgspec

from racegate.history.finding import Race
from racegate.history.schedule import AccessPlace, Hold, Holds, fewest
from racegate.history.verdict import Reach, Tried
from racegate.interpose.outcome import Outcome, Plan

SMALLER_MAX = 64  # runs for making one set of holds smaller, beyond those of the search
OnRun = Callable[[int, int], None]  # after each run: runs made, runs that may be made


Ran = TypeVar("Ran", bound=Outcome)
RanAs = TypeVar("RanAs", bound=Outcome, covariant=True)


class Target(Protocol[RanAs]):
    """What runs under a schedule. Its arguments, or its scenario, are bound when it is made."""

    def run(self, plan: Plan) -> RanAs:
        """One run under a plan: what happened in it."""
        ...


class LandingRun(msgspec.Struct, Generic[Ran], frozen=True, kw_only=True):
    """One run under holds, beside the one without that has the same answers to queries.

    polls: how often completion queries were first answered "not ready"
    base: what came of the run without holds; what: of this one
    is_harmful: something else is observed than in the run without holds, or it is wrong by itself
    is_smallest: none of its holds can be left out
    """

    holds: Holds
    polls: int = 0
    base: Ran
    what: Ran
    is_harmful: bool
    is_smallest: bool = False

    @property
    def is_realised(self) -> bool:
        """Whether each of its holds kept its operation back."""
        return all(self.what.realised.values())

    @property
    def has_landed(self) -> bool:
        """Whether it did what its holds say, and came to an end that says something."""
        return self.what.is_decided and self.is_realised

    def holds_one_of(self, race: Race) -> bool:
        """Whether it keeps back one of the first operations of a race."""
        held = {hold.op for hold in self.holds}
        return any(first in held for first, _ in race.pairs)


class LandingRuns(Generic[Ran]):
    """The runs of one search, each made once.

    bases: the runs without holds, by how often completion queries are first answered "not ready"
    runs_max: after so many the search is spent; is_cut: it was, and not all was tried
    harms: runs that do harm, with as few holds as show it
    unstable: names of observations that differ from run to run without any hold
    """

    def __init__(
        self,
        target: Target[Ran],
        bases: Mapping[int, Ran],
        *,
        runs_max: int,
        on_run: OnRun | None = None,
    ) -> None:
        self._target = target
        self._on_run = on_run
        self.bases = bases
        self.runs_max = runs_max
        self.is_cut = False
        self.made: dict[tuple[Holds, int], LandingRun[Ran]] = {}
        self.harms: list[LandingRun[Ran]] = []
        self.unstable: frozenset[str] = frozenset()

    @property
    def base(self) -> Ran:
        """The recorded run, in which nothing is held."""
        return self.bases[0]

    @property
    def held(self) -> list[LandingRun[Ran]]:
        """All that held something, in the order in which they were made."""
        return [landing for landing in self.made.values() if landing.holds]

    def under(self, holds: Holds, polls: int = 0) -> LandingRun[Ran]:
        """The run under these holds, from before if it was made."""
        if (holds, polls) not in self.made:
            self.made[holds, polls] = self._make(holds, polls)
            if self._on_run is not None:
                self._on_run(len(self.made), self.runs_max)
        return self.made[holds, polls]

    def _make(self, holds: Holds, polls: int) -> LandingRun[Ran]:
        base = self.bases[polls]
        what = self._target.run(Plan(holds=holds, polls=polls, is_recording=False))
        is_harmful = what.is_comparable and what.differs(base, unstable=self.unstable)
        return LandingRun(holds=holds, polls=polls, base=base, what=what, is_harmful=is_harmful)

    def try_all(self, source: Iterable[Holds]) -> None:
        """Tries landings of a source, with each answer to completion queries, until one does harm,
        or the search is spent.
        """
        for holds in filter(None, source):
            for polls in self.bases:
                if (holds, polls) not in self.made and len(self.made) >= self.runs_max:
                    self.is_cut = True
                    return
                landing = self.under(holds, polls)
                if landing.is_harmful:
                    self.harms.append(self.smallest(landing))
                    break

    def smallest(self, harmful: LandingRun[Ran]) -> LandingRun[Ran]:
        """The harm with as few of its holds as show it."""
        end, polls = len(self.made) + SMALLER_MAX, harmful.polls

        def fails(holds: Holds) -> bool | None:
            if len(self.made) >= end and (holds, polls) not in self.made:
                return None
            return bool(holds) and self.under(holds, polls).is_harmful

        holds, is_smallest = fewest(harmful.holds, fails)
        return msgspec.structs.replace(self.under(holds, polls), is_smallest=is_smallest)

    def harm_of(self, race: Race) -> LandingRun[Ran] | None:
        """The run that shows a race: one that is wrong by itself before others, then few holds."""
        shown = [landing for landing in self.harms if landing.holds_one_of(race)]
        return min(
            shown,
            key=lambda landing: (not landing.what.is_wrong, len(landing.holds)),
            default=None,
        )

    def tried(self, reach: Reach, *, known: int = 0) -> Tried:
        """What a verdict may rest on: runs that did what their holds say. known: as of `Tried`"""
        landed = [landing for landing in self.held if landing.has_landed]
        if reach is Reach.EACH_ALONE:
            landed = [landing for landing in landed if len(landing.holds) == 1]
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


def repeats(holds: Holds, positions: Mapping[str, AccessPlace]) -> bool:
    """Whether another combination makes the same schedule: an operation is kept back anyway by one
    before it on its stream, and let go before that one is. positions: in the recorded run
    """
    placed = [
        (positions[hold.op], positions[hold.until].at)
        for hold in holds
        if hold.op in positions and hold.until in positions
    ]
    return any(
        other.lane == own.lane and other.at < own.at and until <= end
        for own, until in placed
        for other, end in placed
    )


def number_of(
    landings: Mapping[str, Sequence[str]], positions: Mapping[str, AccessPlace] | None = None
) -> int:
    """How many combinations there are, without those that repeat another where positions are known.

    A combination is counted stream by stream, and there operation by operation in the order of
    issue: it is held not at all, until a wait needs it, or beyond all before it.
    """
    known = positions or {}
    streams: dict[object, list[str]] = {}
    for operation in landings:
        lane = known[operation].lane if operation in known else operation
        streams.setdefault(lane, []).append(operation)
    return prod(_number_on(one, landings, known) for one in streams.values()) - 1


def _number_on(
    operations: Sequence[str],
    landings: Mapping[str, Sequence[str]],
    positions: Mapping[str, AccessPlace],
) -> int:
    """Of one stream, with the combination that holds nothing."""
    if any(operation not in positions for operation in operations):
        return prod(1 + len(landings[operation]) for operation in operations)
    counts = {-1: 1}  # how many combinations so far, by where the last of them lets go
    for operation in sorted(operations, key=lambda operation: positions[operation].at):
        ends = [positions[one].at for one in landings[operation] if one in positions]
        unplaced = len(landings[operation]) - len(ends)
        held = {latest: number * (1 + unplaced) for latest, number in counts.items()}
        for end in ends:
            beyond = sum(number for latest, number in counts.items() if latest < end)
            held[end] = held.get(end, 0) + beyond
        counts = held
    return sum(counts.values())
