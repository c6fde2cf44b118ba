"""Moments: what a picture shows of a timeline, in its order. Every form of it draws these."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from racegate.history.trace import HOST
from racegate.report.cause.pair import Relation
from racegate.report.timeline.model import Arrow, Bar, Role, StepRows, Timeline

ACCESSES_MAX = 10


class MomentKind(StrEnum):
    """A step begins; the host does something or issues an operation; one lands; a lane waits; so
    many accesses are left out.
    """

    STEP = "step"
    ACTION = "action"
    LANDING = "landing"
    WAIT = "wait"
    MORE = "more"


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a picture. at: its place in the order of issue; note: what it does

    bar: the operation that is issued or lands; step_rows: of a step; arrow: the edge of a wait
    """

    kind: MomentKind
    at: int
    step: int
    lane: int = HOST
    name: str = ""
    note: str = ""
    role: Role = Role.OTHER
    bar: Bar | None = None
    step_rows: StepRows | None = None
    arrow: Arrow | None = None


def moments_of(timeline: Timeline) -> tuple[Moment, ...]:
    """Between the pair, with what touches the same rows, the edges that matter and who sits where.

    From the first of the pair to the last of: the second, the wait that stands too late, the
    landing of the first, who met the wrong value.
    """
    end = _end(timeline)
    shown = [*_accesses(timeline, end), *_waits(timeline, end)]
    steps = {moment.step for moment in shown}
    for at_step in timeline.step_rows:
        if at_step.step in steps:
            begins = min([at_step.at, *(m.at for m in shown if m.step == at_step.step)])
            shown.append(
                Moment(kind=MomentKind.STEP, at=begins, step=at_step.step, step_rows=at_step)
            )
    return tuple(sorted(shown, key=_place))


def lanes_of(timeline: Timeline) -> tuple[int, ...]:
    """The lanes of what is shown."""
    drawn = (MomentKind.STEP, MomentKind.MORE)
    return tuple(sorted({m.lane for m in moments_of(timeline) if m.kind not in drawn}))


def _place(moment: Moment) -> tuple[int, int]:
    """A step begins before what it does, and a landing comes behind its point."""
    order = [MomentKind.STEP, MomentKind.ACTION, MomentKind.WAIT, MomentKind.LANDING]
    return moment.at, order.index(moment.kind) if moment.kind in order else len(order)


def _end(timeline: Timeline) -> int:
    first, second, late = timeline.first, timeline.second, timeline.late
    wrong = [bar.at for bar in timeline.bars if bar.role is Role.WRONG and bar.at > second.at]
    landed = first.landed if first.landed > first.at else first.at
    return max(second.at, landed, *([late.at] if late else []), *wrong[:1])


def _accesses(timeline: Timeline, end: int) -> list[Moment]:
    bars = _merged([b for b in timeline.bars if b.role is not Role.OTHER])
    bars = [bar for bar in bars if timeline.first.at <= bar.at <= end]
    kept = [bar for bar in bars if bar.role is not Role.BESIDE]
    beside = [bar for bar in bars if bar.role is Role.BESIDE]
    hidden = len(beside) - ACCESSES_MAX
    shown = []
    if hidden > 0:
        half = ACCESSES_MAX // 2
        left_out = beside[half : half + hidden]
        beside = [*beside[:half], *beside[half + hidden :]]
        text = f"... {hidden} more accesses of the same rows"
        first = left_out[0]
        shown.append(Moment(kind=MomentKind.MORE, at=first.at, step=first.step, name=text))
    for bar in (*kept, *beside):
        shown.append(_issue(bar))
        if bar.landed > bar.at and bar.landed <= end and bar.role is not Role.BESIDE:
            shown.append(_landing(bar))
    return shown


def _merged(bars: list[Bar]) -> list[Bar]:
    """What a host action does with the rows in one go, once."""
    kept: list[Bar] = []
    for bar in bars:
        last = kept[-1] if kept else None
        is_again = last is not None and bar.lane == HOST and _key(last) == _key(bar)
        if last is None or not is_again or Role.BESIDE not in (last.role, bar.role):
            kept.append(bar)
        elif last.role is Role.BESIDE:
            kept[-1] = bar
    return kept


def _key(bar: Bar) -> tuple[int, str, str]:
    return bar.lane, bar.name, bar.touches


def _issue(bar: Bar) -> Moment:
    note = bar.touches
    if bar.landed > bar.at:
        note = f"held until {bar.held}" if bar.held else "behind a held one"
    return Moment(
        kind=MomentKind.ACTION,
        at=bar.at,
        step=bar.step,
        lane=bar.lane,
        name=bar.name,
        note=note,
        role=bar.role,
        bar=bar,
    )


def _landing(bar: Bar) -> Moment:
    return Moment(
        kind=MomentKind.LANDING,
        at=bar.landed,
        step=bar.step,
        lane=bar.lane,
        name=f"lands: {bar.name}",
        note=bar.touches,
        role=bar.role,
        bar=bar,
    )


def _waits(timeline: Timeline, end: int) -> list[Moment]:
    """Waits of the second's lane that cover the first, or would."""
    first, second = timeline.first, timeline.second
    if timeline.relation is Relation.ORDERED:
        return []
    return [
        Moment(
            kind=MomentKind.WAIT,
            at=arrow.at,
            step=arrow.step,
            lane=arrow.lane,
            name=f"wait: {arrow.edge}",
            note=_fate(arrow, second),
            arrow=arrow,
        )
        for arrow in timeline.arrows
        if arrow.orders_first and arrow.lane == second.lane and first.at < arrow.at <= end
    ]


def _fate(arrow: Arrow, second: Bar) -> str:
    if arrow.is_dropped:
        return "taken out by the fault: orders nothing"
    return "too late: the pair is behind it" if arrow.at > second.at else "covers it"
