"""Landings: where an operation of a conflict may complete, seen from the accesses that it races.

An operation that nothing orders before some later accesses may complete before all of them, as it
does eagerly, or behind any of them. Each of the latter is a hold, and what can happen to several
operations are all their combinations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import ClassVar

from racegate.history.schedule import Holds
from racegate.history.trace import Conflict, HostAccess, OpRecord
from racegate.history.verdict import Reach
from racegate.targets.adapters.target import AdapterOutcome
from racegate.targets.adapters.wire import HelloAnswer, Offer
from racegate.targets.common.landings import LandingRuns, combined, number_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """The landings of the operations in conflict, as a source of landings.

    points: by operation, in issue order, the accesses behind which it may complete
    missing: in words, what these do not reach
    """

    points: dict[str, tuple[str, ...]] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    reach: ClassVar[Reach] = Reach.COMBINATIONS

    def landings(self, runs: LandingRuns[AdapterOutcome]) -> Iterator[Holds]:
        """Every combination, few holds first, until one goes wrong."""
        for holds in combined(self.points):
            if runs.harms:
                return
            yield holds

    def known(self, runs: LandingRuns[AdapterOutcome]) -> int:
        """How many combinations there are."""
        return number_of(self.points)

    def limits(self, runs: LandingRuns[AdapterOutcome]) -> tuple[str, ...]:
        """What the landings do not reach, and what their runs leave open."""
        missing = [*self.missing, *(text for one in runs.held for text in one.what.missing)]
        if runs.is_cut:
            missing.append(f"{len(runs.made)} of {self.known(runs)} landings were tried")
        return tuple(dict.fromkeys(missing))


def points_of(conflicts: Sequence[Conflict], hello: HelloAnswer) -> Points:
    """Where the first operation of each conflict may land, as far as the engine can hold it."""
    if Offer.HOLDS not in hello.offers:
        return Points()
    seconds_of: dict[str, list[OpRecord | HostAccess]] = {}
    for found in conflicts:
        seconds_of.setdefault(found.first.name, []).append(found.second)
    missing = []
    points = {}
    for op, seconds in seconds_of.items():
        if not can_hold(hello, op):
            missing.append(f"the engine cannot hold {op}")
            continue
        if len({second.lane for second in seconds}) > 1:
            missing.append(f"{op} races several lanes, whose own order was not turned")
        names = Counter(second.name for second in seconds)
        missing += [f"{op} may land inside {name}" for name, count in names.items() if count > 1]
        points[op] = tuple(names)
    return Points(points=points, missing=tuple(missing))


def can_hold(hello: HelloAnswer, op: str) -> bool:
    """Whether the engine says that it can hold this operation back."""
    return Offer.HOLDS in hello.offers and any(fnmatchcase(op, p) for p in hello.holdable)
