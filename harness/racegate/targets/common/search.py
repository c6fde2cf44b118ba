"""From the conflicts of one run to landings, whatever the target: a source says which are tried,
and every conflict is told what they do to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Generic, Protocol

import msgspec

from racegate.history.finding import Race, Verdict
from racegate.history.schedule import Holds
from racegate.history.verdict import NOTHING_TRIED, Reach, Tried
from racegate.targets.common.landings import LandingRun, LandingRuns, OnRun, Ran, Target

POLLS = 3  # how often a query is first answered "not ready", in runs that try that answer
LEFT_MAX = 10**15  # of more combinations nobody needs the number, and JSON has no room for it


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


class JudgedRace(msgspec.Struct, Generic[Ran], frozen=True, kw_only=True):
    """A race, and what landings do to it. landings: how many were tried of its operations
    landing: the run that shows it
    """

    race: Race
    effect: Effect
    landings: int
    landing: LandingRun[Ran] | None = None

    @property
    def holds(self) -> Holds:
        """The holds that show it, none if no run did."""
        return () if self.landing is None else self.landing.holds


class LandingSearch(msgspec.Struct, Generic[Ran], frozen=True, kw_only=True):
    """What a search came to.

    races: one per race that was searched for; harms: runs that do harm
    runs: how many were made; left: landings that were not tried, 10**15 for more than that
    limits: why what did not show may yet be harmful; is_interrupted: the user stopped it
    tried: landings that did what they say, which the verdict rests on
    """

    races: tuple[JudgedRace[Ran], ...] = ()
    harms: tuple[LandingRun[Ran], ...] = ()
    runs: int = 0
    left: int = 0
    limits: tuple[str, ...] = ()
    is_interrupted: bool = False
    tried: Tried = NOTHING_TRIED

    @property
    def is_complete(self) -> bool:
        """Whether every landing was tried."""
        return not (self.left or self.limits or self.is_interrupted)


class LandingSource(Protocol[Ran]):
    """Which landings there are of a recorded run. reach: how far the schedules go if all of them
    are tried
    """

    @property
    def reach(self) -> Reach: ...

    def landings(self, runs: LandingRuns[Ran]) -> Iterator[Holds]:
        """The landings in the order in which they are tried; it may look at the runs so far."""
        ...

    def known(self, runs: LandingRuns[Ran]) -> int:
        """How many landings there are, 0 where nobody can count them."""
        ...

    def limits(self, runs: LandingRuns[Ran]) -> tuple[str, ...]:
        """Why what did not show may yet be harmful."""
        ...


def search(
    target: Target[Ran],
    base: Ran,
    source: LandingSource[Ran],
    *,
    runs_max: int,
    polled: Ran | None = None,
    on_run: OnRun | None = None,
    ended_by: tuple[type[BaseException], ...] = (),
) -> LandingSearch[Ran]:
    """Runs the landings of a source.

    base: the recorded run, in which every operation ran at once; polled: one in which queries were
    first answered "not ready", if there are any
    ended_by: what ends it with what is known by then, and not its caller too
    """
    bases = {0: base} if polled is None else {0: base, POLLS: polled}
    runs = LandingRuns(target, bases, runs_max=runs_max, on_run=on_run)
    is_interrupted = False
    try:
        runs.try_all(source.landings(runs))
    except ended_by:
        is_interrupted = True
    known = max(source.known(runs), len(runs.held) if source.known(runs) else 0)
    found = LandingSearch(
        harms=tuple(runs.harms),
        runs=len(runs.made),
        left=min(LEFT_MAX, known - len(runs.held)) if known else 0,
        limits=source.limits(runs),
        is_interrupted=is_interrupted,
    )
    is_each = found.is_complete and not any(race.first.is_host for race in base.findings)
    reach = source.reach if is_each else Reach.SOME
    return msgspec.structs.replace(
        found,
        races=tuple(_judged(race, runs, is_complete=found.is_complete) for race in base.findings),
        tried=runs.tried(reach, known=0 if found.left == LEFT_MAX else known),
    )


def _judged(race: Race, runs: LandingRuns[Ran], *, is_complete: bool) -> JudgedRace[Ran]:
    landed = sum(landing.has_landed and landing.holds_one_of(race) for landing in runs.held)
    harm = runs.harm_of(race)
    if harm is not None:
        is_wrong = harm.what.is_wrong and not runs.base.is_wrong
        effect = Effect.WRONG if is_wrong else Effect.DIVERGENT
    elif is_complete and not race.first.is_host and runs.base.observations:
        effect = Effect.BENIGN  # no landing of a device's operation comes before one of the host
    else:
        effect = Effect.UNKNOWN
    return JudgedRace(race=race, effect=effect, landings=landed, landing=harm)
