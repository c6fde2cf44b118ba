"""Landings of a release: every operation that races is held back until each later access to its
bytes, one operation at a time, and then all that changed nothing at once.

Where an operation may land is read off the run in which it is held as long as the engine's own
waits allow: the accesses to its bytes that come meanwhile are the gaps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from racegate.history.finding import Race
from racegate.history.schedule import Hold, Holds
from racegate.history.verdict import Reach
from racegate.targets.common.landings import LandingRun, LandingRuns, longest
from racegate.targets.common.wire import ReleaseRun

RUNS_MAX = 400
_RAW = "below Python"  # accesses whose place is not known: a landing before them is none


class Gaps:
    """The gaps of each operation that races, as a source of landings."""

    reach: ClassVar[Reach] = Reach.EACH_ALONE

    def landings(self, runs: LandingRuns[ReleaseRun]) -> Iterator[Holds]:
        """Each operation alone, then all together that did no harm alone."""
        operations = racing_operations(runs.base.findings)
        turns = runs.base.turns
        # In the order of issue: runs have their beginning in common with those before them.
        for operation in sorted(operations, key=lambda operation: turns.get(operation, 0)):
            yield from gaps_of(runs, operation)
        harmful = {hold.op for landing in runs.harms for hold in landing.holds}
        clean = [operation for operation in operations if operation not in harmful]
        if len(clean) > 1:
            yield longest(clean)

    def known(self, runs: LandingRuns[ReleaseRun]) -> int:
        """Nobody can count them: a gap is known when its run was made."""
        return 0

    def limits(self, runs: LandingRuns[ReleaseRun]) -> tuple[str, ...]:
        """Landings that were not tried, and what is not seen of them."""
        untried = [_why_open(landing) for landing in runs.held if not landing.has_landed]
        if runs.is_cut:
            untried.append(f"runs were {runs.runs_max}, the most")
        if any(_RAW in kind for kind in runs.base.not_seen):
            untried.append("memory is touched below Python, where no landing can be made")
        return tuple(dict.fromkeys(untried))


def _why_open(landing: LandingRun[ReleaseRun]) -> str:
    run = landing.what
    lost = [hold for hold, count in run.realised.items() if not count]
    return run.message or ", ".join(lost) or str(run.ending)


def gaps_of(runs: LandingRuns[ReleaseRun], operation: str) -> Iterator[Holds]:
    """As late as can be, which tells the gaps and lets the others be forked; then in each gap."""
    latest = longest([operation])
    yield latest
    for gap in runs.under(latest).what.gaps.get(operation, ())[1:]:
        yield (Hold(op=operation, until=gap),)


def racing_operations(races: tuple[Race, ...]) -> tuple[str, ...]:
    """The first operation of every pair that races, in the order of issue of each conflict."""
    firsts = [first for race in races if not race.first.is_host for first, _ in race.pairs]
    return tuple(dict.fromkeys(firsts))
