"""A finding in a run of our own engine, or of one behind an adapter: what its page shows, from the
run and from others that differ in one hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from racegate.check.judge import Judged
from racegate.check.repro.sweep import is_wrong
from racegate.history.finding import FindingKind
from racegate.history.observe import Observation
from racegate.history.outcome import RunResult
from racegate.oracles.paths import ExplainError
from racegate.report.cause.account import Account, Accounted, accounted
from racegate.report.cause.compared import compared
from racegate.report.finding.pictured import (
    Fact,
    PicturedFinding,
    PicturedSide,
    SweptSchedule,
)
from racegate.report.timeline.model import racing_pair, timeline_of
from racegate.scenario.untrusted.text import many
from racegate.targets.adapters.judge import AdapterLook


def pictured_run(
    judged: Judged,
    found: Accounted,
    *,
    title: str,
    reference: Sequence[Observation],
    swept: Sequence[Judged] = (),
) -> PicturedFinding:
    """title: of the scenario; reference: what the reference engine showed; swept: the run under
    other schedules
    """
    account, result = found.account, judged.result
    drawn = filter(None, (_stop(other, account) for other in swept))
    stops = tuple(sorted(drawn, key=lambda stop: stop.timeline.first.landed))
    edge = account.edge
    return PicturedFinding(
        name=f"{result.scenario}: {title}",
        outcome=result.text,
        title=account.title,
        impact=_impact(judged, account, stops),
        hazard=str(account.cause.hazard or ""),
        fault=result.fault or "",
        relation=account.relation,
        sides=tuple(
            PicturedSide(name=side.name, lane=side.lane, verb=side.verb)
            for side in (account.first, account.second)
            if side is not None
        ),
        buffer=account.buffer or "",
        places=tuple(_places(account)),
        edge=account.to_add,
        reason=""
        if edge is None
        else f"It should put {edge.before} before {edge.after}: without it {edge.reason}.",
        holds=result.schedule,
        replay=account.replay,
        warnings=tuple(change.text for change in result.resolved),
        further=tuple(Fact(term=one.kind, text=one.message) for one in account.consequences),
        facts=tuple(_facts(result, account)),
        timeline=None if found.pair is None else timeline_of(judged.run, found.pair),
        stops=stops,
        comparison=compared(judged.run.observations, reference, result.findings),
    )


def pictured_look(look: AdapterLook, *, title: str) -> PicturedFinding | None:
    """A finding of an engine behind an adapter, beside its eager run; None if it tells no run that
    has one.
    """
    result, base, shown = look
    if shown.told is None or base.told is None:
        return None
    judged = Judged(run=shown.history, result=result, conflicts=shown.conflicts)
    found = accounted(judged)
    if found is None:
        return None
    races = tuple(one for one in result.findings if one.kind is FindingKind.CONFLICT)
    eager = msgspec.structs.replace(result, schedule=(), findings=races)
    beside = Judged(run=base.history, result=eager, conflicts=base.conflicts)
    is_held = shown is not base and found.pair is not None and bool(races)
    pictured = pictured_run(
        judged,
        found,
        title=title,
        reference=base.history.observations,
        swept=(beside, judged) if is_held else (),
    )
    return msgspec.structs.replace(pictured, compared_with="the run without holds")


def _places(account: Account) -> Iterator[str]:
    yield from (place.text for place in account.places)
    if account.more_rows:
        yield f"and {account.more_rows} more"


def _facts(result: RunResult, account: Account) -> Iterator[Fact]:
    for room, settings in result.config.items():
        text = ", ".join(f"{name} {value}" for name, value in settings.items())
        yield Fact(term=room, text=text)
    yield Fact(term="device", text=result.device)
    for hold in result.holds:
        state = "realised" if hold.realised else "not realised"
        counts = f"{hold.realised} of {many(hold.matched, 'operation')}"
        yield Fact(term="hold", text=f"{hold.hold}: {state} ({counts})")
    if not result.holds:
        yield Fact(term="holds", text="none: every operation completes when it is issued")
    yield Fact(term="signature", text=account.cause.signature, is_code=True)
    stats = result.stats
    counted = (
        many(stats.steps, "step"),
        many(stats.ops, "operation"),
        many(stats.host_waits, "host wait"),
        many(stats.row_moves, "row move"),
    )
    yield Fact(term="run", text=", ".join(counted))


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
