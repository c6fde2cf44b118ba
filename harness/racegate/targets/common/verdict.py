"""What all runs of a target say together, whatever it is: its verdict by the table, and the result
that every command prints.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import msgspec

from racegate.history.finding import Finding, Race, Verdict, finding_of, with_hazards
from racegate.history.outcome import RunResult
from racegate.history.schedule import Holds, texts_of
from racegate.history.trace import HoldOutcome
from racegate.history.verdict import (
    NOTHING_TRIED,
    Facts,
    Tried,
    tried_by_hand,
    verdict_of,
    verdict_text,
)
from racegate.interpose.outcome import DeviceKind, Ending, Outcome
from racegate.targets.common.landings import Ran
from racegate.targets.common.search import VERDICTS, JudgedRace, LandingSearch

Made = TypeVar("Made", bound=RunResult)


class TargetVerdict(msgspec.Struct, Generic[Ran], frozen=True, kw_only=True):
    """What is said of a target.

    base: the recorded run; shown: the one that is told of, under the holds asked for if there are
    search: what its landings came to; holds: those that somebody asked for
    unmet: why it is no pass; not_seen: what the verdict does not cover
    refused: why the target is not asked to run this, if it is not
    """

    base: Ran
    shown: Ran
    search: LandingSearch[Ran] | None = None
    holds: Holds = ()
    unmet: tuple[str, ...] = ()
    not_seen: tuple[str, ...] = ()
    refused: str = ""

    @property
    def races(self) -> tuple[Race, ...]:
        """In the recorded run, also where the one under holds is told of."""
        return self.base.findings

    @property
    def standing(self) -> tuple[Race, ...]:
        """The races that nobody lets stand."""
        return self.races

    @property
    def judged(self) -> tuple[JudgedRace[Ran], ...]:
        """The races that a search was made for."""
        return () if self.search is None else self.search.races

    @property
    def tried(self) -> Tried:
        """What was tried besides the recorded run: by the search, or by holds."""
        if self.search is not None:
            return self.search.tried
        return tried_under(self.holds, self.shown)

    @property
    def is_changed(self) -> bool:
        """Whether holds change what is observed."""
        if self.search is not None:
            return bool(self.search.harms)
        return bool(self.holds) and self.shown.is_decided and self.shown.differs(self.base)

    @property
    def facts(self) -> Facts:
        """What the table of verdicts is asked about."""
        runs = (self.base, self.shown)
        return Facts(
            is_wrong=self.is_changed or any(run.is_decided and run.is_wrong for run in runs),
            conflicts=len(self.standing) if self.base.is_decided else 0,
            unmet=self.unmet,
            is_compared=bool(self.base.observations),
            tried=self.tried,
        )

    @property
    def verdict(self) -> Verdict:
        """The table's word."""
        return verdict_of(self.facts)

    @property
    def text(self) -> str:
        """The verdict as it is printed, with what was tried."""
        return verdict_text(self.verdict, self.tried)

    @property
    def schedules(self) -> int:
        """How many runs it rests on."""
        return 1 + (bool(self.holds) if self.search is None else self.search.runs)

    @property
    def is_lost(self) -> bool:
        """Whether the target was gone or took too long, so that another run may say more."""
        return self.shown.ending in (Ending.LOST, Ending.TIMED_OUT)


def result_from(
    judged: TargetVerdict[Ran],
    make: Callable[..., Made],
    findings: Sequence[Finding],
    *,
    device: str = DeviceKind.VIRTUAL,
    **more: object,
) -> Made:
    """The result that every command prints. make: the kind of it; findings: causes before effects

    more: what the target alone knows: its name and the scenario's, counts, further fields
    """
    return make(
        device=device,
        schedule=texts_of(judged.holds),
        verdict=judged.verdict,
        findings=with_hazards(tuple(findings)),
        holds=hold_outcomes(judged.shown),
        unmet=judged.unmet,
        tried=judged.tried,
        not_seen=judged.not_seen,
        message=judged.shown.message,
        refused=judged.refused,
        is_lost=judged.is_lost,
        **more,
    )


def tried_under(holds: Holds, run: Outcome) -> Tried:
    """What one run under holds that somebody named has tried: nothing if one kept nothing back."""
    if not holds:
        return NOTHING_TRIED
    return tried_by_hand(hold_outcomes(run) if run.is_decided else ())


def hold_outcomes(run: Outcome) -> tuple[HoldOutcome, ...]:
    """What became of the holds of a run."""
    return tuple(
        HoldOutcome(hold=hold, matched=count, realised=count)
        for hold, count in run.realised.items()
    )


def counted(run: Outcome) -> tuple[str, ...]:
    """What a run did not see, by kind, and how often."""
    return tuple(f"{what}: {count}" for what, count in sorted(run.not_seen.items()))


def finding_in(judged: JudgedRace[Ran], changes: list[str], replay: str) -> Finding:
    """A race as a finding. changes: in words, what a landing changes; replay: what shows it again,
    if one does
    """
    found = finding_of(judged.race)
    return msgspec.structs.replace(
        found,
        message="\n".join([found.message, *changes]),
        verdict=VERDICTS[judged.effect],
        holds=texts_of(judged.holds),
        replay=replay if judged.holds else "",
    )
