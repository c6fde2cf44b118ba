"""The whole run at a glance: who sits in which row, and every operation from its issue to where it
lands; time runs from left to right.

A lane is one path, however many operations it has: a run of thousands opens at once.
"""

from __future__ import annotations

from typing import NamedTuple

from racegate.history.trace import HOST
from racegate.report.templating import render
from racegate.report.timeline.model import Role, Timeline
from racegate.report.timeline.moments import moments_of
from racegate.report.timeline.svg import hues_of

WIDTH = 960
_LEFT, _RIGHT = 96, 16
_ROW = 18  # height of a row of the batch
_LANE = 26
_ROWS_MAX = 16
_TOP = 30
_LABEL_WIDTH = 44  # between labels of steps
_NAME_FITS = 16  # a stay as wide as this has its request's name in it


class Stay(NamedTuple):
    """A request in a row, as long as it has it."""

    x: float
    y: float
    width: float
    name: str
    hue: int
    is_named: bool


class LaneDrawing(NamedTuple):
    """path: every operation, from its issue to where it lands; bad: those of the pair"""

    name: str
    y: float
    path: str
    bad: str


class Label(NamedTuple):
    """Where a step begins."""

    x: float
    step: int


class _Scale(NamedTuple):
    """places: in the order of issue"""

    places: int

    def x(self, at: float) -> float:
        return round(_LEFT + (WIDTH - _LEFT - _RIGHT) * at / max(1, self.places), 1)


def svg_overview(timeline: Timeline) -> str:
    """The picture, without its colours: for a page that has them."""
    scale = _Scale(max(bar.at for bar in timeline.bars) + 1)
    rows = min(_ROWS_MAX, max((len(at_step.rows) for at_step in timeline.step_rows), default=0))
    lanes_top = _TOP + rows * _ROW + 10
    moments = moments_of(timeline)
    return render(
        "overview.svg.j2",
        width=WIDTH,
        height=lanes_top + _LANE * len(timeline.lanes) + 12,
        left=_LEFT,
        right=WIDTH - _RIGHT,
        top=_TOP,
        rows=[(row, _TOP + row * _ROW) for row in range(rows)],
        raced=timeline.rows if timeline.noun == "row" else (),
        stays=_stays(timeline, scale, rows),
        lanes=_lanes(timeline, scale, lanes_top),
        labels=_labels(timeline, scale),
        window=(scale.x(moments[0].at), scale.x(moments[-1].at + 1)),
        operations=sum(bar.lane != HOST for bar in timeline.bars),
    )


def _stays(timeline: Timeline, scale: _Scale, rows: int) -> list[Stay]:
    hues = hues_of(timeline)
    ends = [at_step.at for at_step in timeline.step_rows[1:]] + [scale.places]
    stays: list[Stay] = []
    last: dict[int, int] = {}  # row -> its stay, if it goes on
    for at_step, end in zip(timeline.step_rows, ends, strict=True):
        for row in range(rows):
            name = at_step.rows[row] if row < len(at_step.rows) else None
            before = stays[last[row]] if row in last else None
            if name is None:
                last.pop(row, None)
            elif before is not None and before.name == name:
                stays[last[row]] = before._replace(width=scale.x(end) - before.x)
            else:
                x = scale.x(at_step.at)
                last[row] = len(stays)
                width = scale.x(end) - x
                stays.append(Stay(x, _TOP + row * _ROW, width, name, hues[name], False))
    return [
        stay._replace(is_named=stay.width >= max(_NAME_FITS, 7.5 * len(stay.name) + 6))
        for stay in stays
    ]


def _lanes(timeline: Timeline, scale: _Scale, top: float) -> list[LaneDrawing]:
    lanes = []
    for lane, name in enumerate(timeline.lanes):
        y = top + lane * _LANE
        here = [bar for bar in timeline.bars if bar.lane == lane]
        paths: dict[bool, list[str]] = {False: [], True: []}
        for bar in here:
            end = max(scale.x(bar.landed), scale.x(bar.at) + 1.2)
            is_bad = bar.role in (Role.FIRST, Role.SECOND, Role.WRONG)
            paths[is_bad].append(f"M{scale.x(bar.at):g} {y + 11:g}H{end:g}")
        lanes.append(LaneDrawing(name, y, "".join(paths[False]), "".join(paths[True])))
    return lanes


def _labels(timeline: Timeline, scale: _Scale) -> list[Label]:
    """Of as many steps as there is room for."""
    labels: list[Label] = []
    for at_step in timeline.step_rows:
        x = scale.x(at_step.at)
        if not labels or x - labels[-1].x >= _LABEL_WIDTH:
            labels.append(Label(x, at_step.step))
    return labels
