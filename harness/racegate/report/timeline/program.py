"""The picture of a conflict in a program: its two places, the lanes that they are on, the hold that
shows it and the edge that is missing. What else the program did is not in a finding.
"""

from __future__ import annotations

from itertools import chain

import msgspec

from racegate.history.finding import Race, Side, Verdict, by_cause
from racegate.history.schedule import Holds
from racegate.history.trace import HOST
from racegate.report.cause.pair import Relation
from racegate.report.timeline.model import Bar, Role, Timeline
from racegate.report.timeline.several import Fact, PicturedFinding, findings_page
from racegate.targets.common.search import VERDICTS
from racegate.targets.program.judge import ProgramVerdict
from racegate.targets.program.repair import repair_of
from racegate.targets.program.words import difference_in, replay_of

_FRAMES_MAX = 4


def program_page(verdicts: ProgramVerdict, command: str) -> str:
    """All findings of a program, as HTML. command: the script with its arguments"""
    judged = {one.race.signature: one for one in verdicts.judged}
    shown = []
    for race in chain.from_iterable(by_cause(verdicts.races)):
        one = judged.get(race.signature)
        landing = None if one is None else one.landing
        seen = [] if landing is None else difference_in(landing)
        shown.append(
            pictured_conflict(
                race,
                () if landing is None else landing.holds,
                name=race.signature,
                outcome=Verdict.CONFLICT if one is None else VERDICTS[one.effect],
                impact=" ".join(line.strip().removeprefix("value").strip() for line in seen),
                replay="" if landing is None else replay_of(landing, command),
            )
        )
    return findings_page(f"Findings of {command}", shown)


def pictured_conflict(
    finding: Race, holds: Holds, *, name: str, outcome: str, impact: str, replay: str
) -> PicturedFinding:
    """A conflict with its two places and what orders them. impact: what another landing changes"""
    facts = [
        Fact(term=f"{side.lane} {'writes' if side.is_write else 'reads'}", text=_stack(side))
        for side in (finding.first, finding.second)
    ]
    facts.append(Fact(term="edge", text=finding.cause or finding.edge))
    if repair := repair_of(finding):
        facts.append(Fact(term="repair", text=repair, is_code=True))
    facts += [Fact(term="hold", text=hold.text(), is_code=True) for hold in holds]
    facts += [Fact(term="again", text=replay, is_code=True)] if replay else []
    return PicturedFinding(
        name=name,
        outcome=outcome,
        title=f"Race on {finding.buffer}: {finding.first.place} and {finding.second.place}",
        impact=impact,
        facts=tuple(facts),
        timeline=conflict_timeline(finding, holds),
    )


def _stack(side: Side) -> str:
    frames = [f"{file}:{line} in {function}" for file, line, function in side.frames[:_FRAMES_MAX]]
    return " from ".join(frames) or "at an unknown place"


def conflict_timeline(finding: Race, holds: Holds = ()) -> Timeline:
    """The first place, then the second; under a hold the first lands behind the second."""
    sides = (finding.first, finding.second)
    hosts = [side.lane for side in sides if side.is_host]
    lanes = tuple(dict.fromkeys([(hosts or ["the host"])[0], *(side.lane for side in sides)]))
    bars = tuple(
        _bar(side, role, at, lanes.index(side.lane), holds)
        for at, (side, role) in enumerate(zip(sides, (Role.FIRST, Role.SECOND), strict=True))
    )
    return Timeline(
        lanes=lanes,
        bars=tuple(_touching(bar, side, finding) for bar, side in zip(bars, sides, strict=True)),
        arrows=(),
        buffer=finding.buffer,
        rows=(),
        noun="byte",
        relation=Relation.UNORDERED,
        step_rows=(),
    )


def _bar(side: Side, role: Role, at: int, lane: int, holds: Holds) -> Bar:
    """A half of a copy is held by the copy's name with a word before it."""
    until = next((hold.until for hold in holds if hold.op == side.label), "")
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


def _touching(bar: Bar, side: Side, finding: Race) -> Bar:
    verb = "writes" if side.is_write else "reads"
    return msgspec.structs.replace(bar, touches=f"{verb} {finding.nbytes} bytes, {side.place}")
