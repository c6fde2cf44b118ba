"""What a page shows of the findings of a target that is not ours: two places with their stacks, the
lines that change, the landing that passes beside the one that does harm. What else ran is not in a
finding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from racegate.history.finding import Finding, Race, Side, Stack, Verdict, one_per_cause
from racegate.history.outcome import RunResult
from racegate.history.schedule import Half
from racegate.history.trace import HOST
from racegate.report.cause.account import NO_IMPACT
from racegate.report.cause.pair import Relation
from racegate.report.finding.page import findings_page
from racegate.report.finding.pictured import (
    Fact,
    PicturedFinding,
    PicturedSide,
    SweptSchedule,
)
from racegate.report.finding.sources import source_of
from racegate.report.timeline.model import Bar, Role, Timeline
from racegate.targets.program.repair import frame_text

_UNSEEN = (
    "No run that was made came out wrong. An order is missing: some timing exchanges the two, and "
    "then the one meets what the other leaves."
)


def results_page(results: Sequence[RunResult]) -> str:
    """Everything that was found, as one page of HTML."""
    targets = dict.fromkeys(result.target or result.scenario for result in results)
    return findings_page(f"Findings in {', '.join(targets)}", pictured_results(results))


def pictured_results(results: Sequence[RunResult]) -> list[PicturedFinding]:
    """Everything that was found, cause by cause; beside a base only what differs from it."""
    return [
        pictured_cause(findings, result)
        for result in results
        for findings in one_per_cause(shown_findings(result))
    ]


def shown_findings(result: RunResult) -> tuple[Finding, ...]:
    """What counts of a result."""
    beside = result.comparison
    return result.findings if beside is None else beside.findings


def pictured_cause(findings: Sequence[Finding], result: RunResult) -> PicturedFinding:
    """Findings of one cause: one that a run shows in full, and a line for each of the others."""
    told = next((one for one in findings if one.holds), findings[0])
    others = [one for one in findings if one is not told]
    return msgspec.structs.replace(
        _pictured(told, result),
        further=tuple(Fact(term=_verdict(one, result), text=_line(one)) for one in others),
        further_of="cause",
        facts=tuple(_facts(told, result)),
    )


def _verdict(finding: Finding, result: RunResult) -> Verdict:
    return result.verdict if finding.verdict is None else finding.verdict


def _line(finding: Finding) -> str:
    race = finding.race
    if race is None:
        return finding.message
    return f"{race.buffer}: {race.first.place} and {race.second.place} [{finding.signature}]"


def _facts(finding: Finding, result: RunResult) -> Iterator[Fact]:
    yield Fact(term="signature", text=finding.signature, is_code=True)
    yield Fact(term="device", text=result.device)
    for room, settings in result.config.items():
        yield Fact(term=room, text=", ".join(f"{name} {text}" for name, text in settings.items()))
    if finding.race is not None:
        for name, side in (("first", finding.race.first), ("second", finding.race.second)):
            yield Fact(term=name, text=side.label, is_code=True)
    yield from (Fact(term="not seen", text=text) for text in result.not_seen)


def _pictured(finding: Finding, result: RunResult) -> PicturedFinding:
    race = finding.race
    whole = PicturedFinding(
        name=f"{result.scenario}, {result.target}" if result.target else result.scenario,
        outcome=_verdict(finding, result),
        title=f"{finding.kind.capitalize()}: {finding.buffer or finding.field or 'what was run'}",
        impact=finding.message,
        hazard=str(finding.hazard or ""),
        fault=result.fault or "",
        relation=Relation.ORDERED,
        holds=finding.holds,
        replay=finding.replay,
    )
    return whole if race is None else _with_race(whole, finding, race)


def _with_race(whole: PicturedFinding, finding: Finding, race: Race) -> PicturedFinding:
    holds, impact = finding.holds, _impact(finding)
    times = f", {race.count} times" if race.count > 1 else ""
    return msgspec.structs.replace(
        whole,
        title=f"Race on {race.buffer}: {race.first.place} and {race.second.place}",
        impact=impact or (NO_IMPACT if finding.verdict is Verdict.BENIGN else _UNSEEN),
        relation=Relation.UNORDERED,
        sides=(_side(race.first), _side(race.second)),
        buffer=race.buffer,
        places=(f"{race.nbytes} bytes{times}",),
        allocated=_frames(race.allocated),
        edge=race.missing,
        source=source_of(race),
        timeline=conflict_timeline(race, holds),
        stops=_stops(race, holds, impact) if holds and impact else (),
    )


def _impact(finding: Finding) -> str:
    """What a run under holds showed, if one did: it stands behind the race in the message."""
    _, *changes = finding.message.split("\n")
    return " ".join(line.strip().removeprefix("value").strip() for line in changes)


def _side(side: Side) -> PicturedSide:
    return PicturedSide(
        name=side.operation,
        lane=side.lane,
        verb="writes it" if side.is_write else "reads it",
        stack=_frames(side.frames) or ("at an unknown place",),
        made=_frames(side.made),
    )


def _frames(stack: Stack) -> tuple[str, ...]:
    return tuple(map(frame_text, stack))


def _stops(race: Race, holds: Sequence[str], impact: str) -> tuple[SweptSchedule, ...]:
    """Nothing held, which passes, and the landing that does harm."""
    return (
        SweptSchedule(holds=(), impact="", timeline=conflict_timeline(race)),
        SweptSchedule(holds=tuple(holds), impact=impact, timeline=conflict_timeline(race, holds)),
    )


def conflict_timeline(race: Race, holds: Sequence[str] = ()) -> Timeline:
    """The first place, then the second; under a hold the first lands behind the second. holds: as
    text
    """
    sides = (race.first, race.second)
    hosts = [side.lane for side in sides if side.is_host]
    lanes = tuple(dict.fromkeys([(hosts or ["the host"])[0], *(side.lane for side in sides)]))
    bars = tuple(
        _bar(side, role, at, lanes.index(side.lane), holds)
        for at, (side, role) in enumerate(zip(sides, (Role.FIRST, Role.SECOND), strict=True))
    )
    return Timeline(
        lanes=lanes,
        bars=tuple(_touching(bar, side, race) for bar, side in zip(bars, sides, strict=True)),
        arrows=(),
        buffer=race.buffer,
        rows=(),
        noun="byte",
        relation=Relation.UNORDERED,
        step_rows=(),
    )


def _bar(side: Side, role: Role, at: int, lane: int, holds: Sequence[str]) -> Bar:
    until = next(filter(None, (_until(side.label, hold) for hold in holds)), "")
    return Bar(
        name=side.operation,
        step=0,
        lane=lane,
        at=at,
        until=at if lane == HOST or side.is_host else None,
        landed=2 if until and role is Role.FIRST else at,
        role=role,
        held=until,
    )


def _until(label: str, hold: str) -> str:
    """The point until which a hold keeps an operation, or half of it; empty if it is of another."""
    operation, _, until = hold.rpartition(" until ")
    return until if operation in (label, *(f"{half.value}{label}" for half in Half)) else ""


def _touching(bar: Bar, side: Side, race: Race) -> Bar:
    verb = "writes" if side.is_write else "reads"
    return msgspec.structs.replace(bar, touches=f"{verb} {race.nbytes} bytes, {side.place}")
