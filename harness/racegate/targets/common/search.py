"""From the conflicts of one run to landings: every operation that races is held back until each
later access to its bytes, one operation at a time, and then all that changed nothing at once.

Where an operation may land is read off the run in which it is held as long as the program's own
waits allow: the accesses to its bytes that come meanwhile are the gaps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum

import msgspec

from racegate.history.finding import Race, Verdict
from racegate.history.schedule import Hold, Holds
from racegate.history.verdict import NOTHING_TRIED, Reach, Tried
from racegate.interpose.outcome import Ending, Plan
from racegate.targets.common.landings import LandingRun, LandingRuns, longest
from racegate.targets.common.wire import ReleaseRun

# Others say something about this tool or this machine, and nothing about the landing.
_ENDINGS = (Ending.FINISHED, Ending.FAILED)
_RAW = "below Python"  # accesses whose place is not known: a landing before them is none
RUNS_MAX = 400
RunPlan = Callable[[Plan], ReleaseRun]


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


VERDICTS = {
    Effect.WRONG: Verdict.DIVERGENT,
    Effect.DIVERGENT: Verdict.DIVERGENT,
    Effect.UNKNOWN: Verdict.CONFLICT,
    Effect.BENIGN: Verdict.BENIGN,
}
# What is wrong in the run that is shown, by whatever.
WRONG_SHOWN = "wrong/held"


def known_as(effect: Effect, buffer: str, signature: str) -> str:
    """What a finding is called: the hash of a race alone would tell a reader nothing."""
    return f"{effect}/{buffer}/{signature}"


class JudgedRace(msgspec.Struct, frozen=True, kw_only=True):
    """A conflict, and what its landings do. landing: the first run that shows it"""

    race: Race
    effect: Effect
    landings: int
    landing: LandingRun[ReleaseRun] | None = None


class LandingSearch(msgspec.Struct, frozen=True, kw_only=True):
    """runs: under holds; is_complete: every landing of every operation was tried
    untried: why the first one that was not tried was not
    tried: landings of one operation that did what they say
    """

    conflicts: tuple[JudgedRace, ...]
    runs: int
    is_complete: bool
    untried: str = ""
    tried: Tried = NOTHING_TRIED

    @property
    def is_changed(self) -> bool:
        """Whether a landing changes what is observed, or is wrong by itself."""
        return any(found.landing is not None for found in self.conflicts)


def search(
    run: RunPlan,
    base: ReleaseRun,
    *,
    runs_max: int = RUNS_MAX,
    on_run: Callable[[int], None] | None = None,
) -> LandingSearch:
    """base: the recorded run in which every operation ran at once. on_run: told of progress."""
    attempts = attempts_of(run, base, runs_max=runs_max, on_run=on_run)
    is_enough = attempts.every(_landings(attempts, base))
    untried = [attempt.missing[0] for attempt in attempts.held if not attempt.has_landed]
    if not is_enough:
        untried.append(f"runs were {runs_max}, the most")
    if any(_RAW in kind for kind in base.not_seen):
        untried.append("memory is touched below Python, where no landing can be made")
    findings = base.findings
    # No landing of a device's operation turns an access of the host round that comes first.
    is_each = not untried and not any(finding.first.is_host for finding in findings)
    return LandingSearch(
        conflicts=tuple(
            _judged(finding, attempts.held, base, is_complete=not untried) for finding in findings
        ),
        runs=len(attempts.made),
        is_complete=not untried,
        untried=untried[0] if untried else "",
        tried=attempts.tried(Reach.EACH_ALONE if is_each else Reach.SOME),
    )


def attempts_of(
    run: RunPlan,
    base: ReleaseRun,
    *,
    runs_max: int = RUNS_MAX,
    on_run: Callable[[int], None] | None = None,
) -> LandingRuns[ReleaseRun]:
    """Runs of an engine under holds, none made yet. base: as of `search`"""

    def make(holds: Holds, polls: int) -> LandingRun[ReleaseRun]:
        told = run(Plan(holds=holds, polls=polls, is_recording=False))
        lost = [hold for hold, count in told.realised.items() if not count]
        return LandingRun(
            holds=holds,
            polls=polls,
            what=told,
            is_decided=is_decided(told),
            is_realised=not lost,
            is_harmful=told.seen != base.seen,
            missing=(told.message or ", ".join(lost) or str(told.ending),),
        )

    def tell(made: int, most: int) -> None:
        if on_run is not None:
            on_run(made)

    return LandingRuns(make, runs_max=runs_max, on_run=tell)


def _landings(attempts: LandingRuns[ReleaseRun], base: ReleaseRun) -> Iterator[Holds]:
    """Each operation alone, then all together that did no harm alone."""
    operations = racing_operations(base.findings)
    # In the order of issue: runs have their beginning in common with those before them.
    for operation in sorted(operations, key=lambda operation: base.turns.get(operation, 0)):
        yield from gaps_of(attempts, operation)
    harmful = {
        hold.op
        for attempt in attempts.held
        if attempt.has_landed and attempt.is_harmful
        for hold in attempt.holds
    }
    clean = [operation for operation in operations if operation not in harmful]
    if len(clean) > 1:
        yield longest(clean)


def gaps_of(attempts: LandingRuns[ReleaseRun], operation: str) -> Iterator[Holds]:
    """As late as can be, which tells the gaps and lets the others be forked; then in each gap."""
    latest = longest([operation])
    yield latest
    for gap in attempts.under(latest).what.gaps.get(operation, ())[1:]:
        yield (Hold(op=operation, until=gap),)


def racing_operations(findings: tuple[Race, ...]) -> tuple[str, ...]:
    """The first operation of every pair that races, in the order of issue of each conflict."""
    firsts = [
        first for finding in findings if not finding.first.is_host for first, _ in finding.pairs
    ]
    return tuple(dict.fromkeys(firsts))


def _judged(
    finding: Race,
    attempts: Sequence[LandingRun[ReleaseRun]],
    base: ReleaseRun,
    *,
    is_complete: bool,
) -> JudgedRace:
    landed = [
        attempt
        for first in dict.fromkeys(first for first, _ in finding.pairs)
        for attempt in attempts
        if attempt.has_landed and any(hold.op == first for hold in attempt.holds)
    ]
    changes = sorted(
        (attempt for attempt in landed if attempt.is_harmful),
        key=lambda attempt: (not is_wrong(attempt.what), len(attempt.holds)),
    )
    if changes:
        landing = changes[0]
        effect = Effect.WRONG if is_wrong(landing.what) else Effect.DIVERGENT
        return JudgedRace(race=finding, effect=effect, landings=len(landed), landing=landing)
    is_all = is_complete and not finding.first.is_host and bool(base.observations)
    effect = Effect.BENIGN if is_all else Effect.UNKNOWN
    return JudgedRace(race=finding, effect=effect, landings=len(landed))


def is_decided(told: ReleaseRun) -> bool:
    """Whether a run came to an end of its own, so that it says something about the engine."""
    return told.ending in _ENDINGS


def is_tried(told: ReleaseRun) -> bool:
    """Whether a run under holds did what they say, and came to an end of its own."""
    return is_decided(told) and all(told.realised.values())


def is_wrong(told: ReleaseRun) -> bool:
    """Whether a run is wrong by itself: a count that is not true, a token that plain decoding does
    not give, an engine that failed.
    """
    is_failed = told.exit_code or told.ending is Ending.FAILED
    return bool(told.wrong or told.delivered != told.plain or is_failed)
