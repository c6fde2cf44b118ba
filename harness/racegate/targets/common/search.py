"""From the conflicts of one run to landings: every operation that races is held back until each
later access to its bytes, one operation at a time, and then all that changed nothing at once.

Where an operation may land is read off the run in which it is held as long as the program's own
waits allow: the accesses to its bytes that come meanwhile are the gaps.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import msgspec

from racegate.history.finding import Race
from racegate.history.schedule import FORCED
from racegate.history.verdict import NOTHING_TRIED, Reach, Tried
from racegate.interpose.outcome import Ending, Plan
from racegate.targets.common.wire import Told

# Others say something about this tool or this machine, and nothing about the landing.
_ENDINGS = (Ending.FINISHED, Ending.FAILED)
_RAW = "below Python"  # accesses whose place is not known: a landing before them is none
RUNS_MAX = 400
Holds = tuple[tuple[str, str], ...]
RunPlan = Callable[[Plan], Told]


class Effect(StrEnum):
    """What landings do to a conflict.

    WRONG: a run ends with another count or token than is true, or fails
    DIVERGENT: a run observes something else
    BENIGN: every landing was tried, and nothing changed
    UNKNOWN: not every landing was tried
    """

    WRONG = "wrong"
    DIVERGENT = "divergent"
    BENIGN = "benign"
    UNKNOWN = "unknown"


class Landing(msgspec.Struct, frozen=True, kw_only=True):
    """One run under holds that came out differently."""

    holds: Holds
    told: Told


class JudgedConflict(msgspec.Struct, frozen=True, kw_only=True):
    """A conflict, and what its landings do. landing: the first one that shows it"""

    finding: Race
    effect: Effect
    landings: int
    landing: Landing | None = None


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """runs: under holds; is_complete: every landing of every operation was tried
    untried: why the first one that was not tried was not
    tried: landings of one operation that did what they say
    """

    conflicts: tuple[JudgedConflict, ...]
    runs: int
    is_complete: bool
    untried: str = ""
    tried: Tried = NOTHING_TRIED

    @property
    def is_changed(self) -> bool:
        """Whether a landing changes what is observed, or is wrong by itself."""
        return any(found.landing is not None for found in self.conflicts)


class _Tried:
    """Runs under holds. changes: first operation -> the landings that came out differently
    alone: landings of one operation that did what they say
    """

    def __init__(self, run: RunPlan, base: Told, runs_max: int) -> None:
        self._run = run
        self._base = base
        self._runs_max = runs_max
        self.runs = 0
        self.alone = 0
        self.untried = ""
        self.landings: dict[str, int] = {}
        self.changes: dict[str, list[Landing]] = {}

    def hold(self, holds: Holds) -> Told | None:
        """None if there are no runs left."""
        if self.runs >= self._runs_max:
            self.miss(f"runs were {self._runs_max}, the most")
            return None
        self.runs += 1
        told = self._run(Plan(holds=holds, is_recording=False))
        did_land = is_tried(told)
        self.alone += did_land and len(holds) == 1
        if not did_land:
            lost = [hold for hold, count in told.outcome.realised.items() if not count]
            self.miss(told.outcome.message or ", ".join(lost) or str(told.outcome.ending))
        for operation, _ in holds:
            self.landings[operation] = self.landings.get(operation, 0) + did_land
            if did_land and told.seen != self._base.seen:
                landing = Landing(holds=holds, told=told)
                self.changes.setdefault(operation, []).append(landing)
        return told

    def miss(self, why: str) -> None:
        """Not every landing is tried. The first reason is kept."""
        self.untried = self.untried or why


def search(
    run: RunPlan,
    base: Told,
    *,
    runs_max: int = RUNS_MAX,
    on_run: Callable[[int], None] | None = None,
) -> Search:
    """base: the recorded run in which every operation ran at once. on_run: told of progress."""

    def counted(plan: Plan) -> Told:
        told = run(plan)
        if on_run is not None:
            on_run(tried.runs)
        return told

    tried = _Tried(counted, base, runs_max)
    operations = racing_operations(base.outcome.findings)
    # In the order of issue: runs have their beginning in common with those before them.
    for operation in sorted(operations, key=lambda operation: base.turns.get(operation, 0)):
        told = tried.hold(((operation, FORCED),))
        if told is None:
            break
        for gap in told.gaps.get(operation, ())[1:]:
            tried.hold(((operation, gap),))
    clean = [operation for operation in operations if operation not in tried.changes]
    if len(clean) > 1:
        tried.hold(tuple((operation, FORCED) for operation in clean))
    if any(_RAW in kind for kind in base.outcome.not_seen):
        tried.miss("memory is touched below Python, where no landing can be made")
    findings = base.outcome.findings
    # No landing of a device's operation turns an access of the host round that comes first.
    is_each = not tried.untried and not any(finding.first.is_host for finding in findings)
    return Search(
        conflicts=tuple(_judged(finding, tried, base) for finding in findings),
        runs=tried.runs,
        is_complete=not tried.untried,
        untried=tried.untried,
        tried=Tried(reach=Reach.EACH_ALONE if is_each else Reach.SOME, number=tried.alone),
    )


def racing_operations(findings: tuple[Race, ...]) -> tuple[str, ...]:
    """The first operation of every pair that races, in the order of issue of each conflict."""
    firsts = [
        first for finding in findings if not finding.first.is_host for first, _ in finding.pairs
    ]
    return tuple(dict.fromkeys(firsts))


def _judged(finding: Race, tried: _Tried, base: Told) -> JudgedConflict:
    firsts = tuple(dict.fromkeys(first for first, _ in finding.pairs))
    landings = sum(tried.landings.get(first, 0) for first in firsts)
    changes = sorted(
        (landing for first in firsts for landing in tried.changes.get(first, ())),
        key=lambda landing: (not is_wrong(landing.told), len(landing.holds)),
    )
    if changes:
        effect = Effect.WRONG if is_wrong(changes[0].told) else Effect.DIVERGENT
        return JudgedConflict(finding=finding, effect=effect, landings=landings, landing=changes[0])
    is_all = not tried.untried and not finding.first.is_host and bool(base.outcome.observations)
    return JudgedConflict(
        finding=finding, effect=Effect.BENIGN if is_all else Effect.UNKNOWN, landings=landings
    )


def is_decided(told: Told) -> bool:
    """Whether a run came to an end of its own, so that it says something about the engine."""
    return told.outcome.ending in _ENDINGS


def is_tried(told: Told) -> bool:
    """Whether a run under holds did what they say, and came to an end of its own."""
    return is_decided(told) and all(told.outcome.realised.values())


def is_wrong(told: Told) -> bool:
    """Whether a run is wrong by itself: a count that is not true, a token that plain decoding does
    not give, an engine that failed.
    """
    is_failed = told.outcome.exit_code or told.outcome.ending is Ending.FAILED
    return bool(told.wrong or told.delivered != told.plain or is_failed)
