"""Material: all that a report of a finding is made of."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from racegate.check.judge import Judged
from racegate.check.repro.sweep import is_wrong
from racegate.history.observe import Observation
from racegate.history.outcome import RunResult
from racegate.oracles.paths import ExplainError
from racegate.report.cause.account import Account, Accounted, accounted
from racegate.report.cause.compared import ValueComparison, compared
from racegate.report.timeline.model import Timeline, racing_pair, timeline_of


class SweptSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """One schedule of a slider. holds: as text; impact: what goes wrong under it, or nothing"""

    holds: tuple[str, ...]
    impact: str
    timeline: Timeline

    @property
    def goes_wrong(self) -> bool:
        """Whether a value is wrong under it."""
        return bool(self.impact)


class Material(msgspec.Struct, frozen=True, kw_only=True):
    """A run in which something was found. title: the scenario's; timeline: None without a pair

    impact: what would happen to a user, in this run or under one of the stops
    stops: schedules that differ in one hold, from the earliest landing to the latest
    """

    title: str
    result: RunResult
    account: Account
    impact: str
    timeline: Timeline | None
    comparison: ValueComparison
    stops: tuple[SweptSchedule, ...]


def material_of(
    judged: Judged,
    found: Accounted,
    *,
    title: str,
    reference: Sequence[Observation],
    swept: Sequence[Judged] = (),
) -> Material:
    """reference: what the reference engine showed; swept: the run under other schedules"""
    drawn = filter(None, (_stop(other, found.account) for other in swept))
    stops = tuple(sorted(drawn, key=lambda stop: stop.timeline.first.landed))
    return Material(
        title=title,
        result=judged.result,
        account=found.account,
        impact=_impact(judged, found.account, stops),
        timeline=None if found.pair is None else timeline_of(judged.run, found.pair),
        comparison=compared(judged.run.observations, reference, judged.result.findings),
        stops=stops,
    )


def _impact(judged: Judged, account: Account, stops: Sequence[SweptSchedule]) -> str:
    """What would happen to a user: in this run, or in the first other one in which it does."""
    wrong = next((stop for stop in stops if stop.goes_wrong), None)
    if is_wrong(judged) or wrong is None:
        return account.impact
    return f"Nothing went wrong in this run. With {', '.join(wrong.holds)}: {wrong.impact}"


def _stop(judged: Judged, account: Account) -> SweptSchedule | None:
    """None if the pair does not race in that run: what goes wrong earlier may keep it away."""
    assert account.first is not None and account.second is not None
    try:
        pair = racing_pair(judged.run.trace, account.first.name, account.second.name)
    except ExplainError:
        return None
    here = accounted(judged)
    assert here is not None, "a run with the pair has the finding"
    return SweptSchedule(
        holds=judged.result.schedule,
        impact=here.account.impact if is_wrong(judged) else "",
        timeline=timeline_of(judged.run, pair),
    )
