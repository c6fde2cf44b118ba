"""A timeline as a picture: a band for the host and one for each lane, time from left to right, the
missing edge red and dashed.

What touches the rows of the race has a line of its own in its band, so that no label covers
another; everything else between is a tick.
"""

from __future__ import annotations

from typing import NamedTuple

from racegate.history.trace import HOST
from racegate.report.templating import render
from racegate.report.timeline.model import Bar, Role, Timeline

WIDTH = 960
_LEFT, _RIGHT = 120, 24  # of the bands: names stand left of them
_TOP = 40
_LINE = 34  # height of one labelled bar, its text included
_PADDING = 12
_MARGIN = 0.06  # of the time shown, before the pair and behind it
_LATE_X = 0.55 * WIDTH  # a bar that begins behind it has its label to the left
_BARS_MAX = 12  # with a label, per band
_MARK = 14  # height of the label of a wait
_HEAD = 5  # of a bar: where arrows meet it
_BEFORE_STEPS = -1  # the step of what is done while the engine is set up


class Box(NamedTuple):
    """A labelled bar. role: a class of the picture; anchor: which end of its label stands at
    label_x
    """

    x: float
    y: float
    width: float
    label_x: float
    anchor: str
    name: str
    note: str
    role: str


class Band(NamedTuple):
    """A lane. ticks: operations that have nothing to do with the race"""

    name: str
    y: float
    height: float
    ticks: tuple[float, ...]
    boxes: tuple[Box, ...]


class Mark(NamedTuple):
    """A wait that covers the first of the pair, or would. y, bottom: of its band"""

    x: float
    y: float
    bottom: float
    anchor: str
    label_y: float
    text: str


class Step(NamedTuple):
    """Where a step of the engine begins."""

    x: float
    number: int


class _Scale:
    """Places in the order of issue to pixels. low, high: the first and the last that are shown"""

    def __init__(self, timeline: Timeline) -> None:
        first, second, late = timeline.first, timeline.second, timeline.late
        end = max(second.at, late.at if late else 0, first.until or 0)
        margin = max(2.0, (end - first.at) * _MARGIN)
        self.low, self.high = first.at - margin, end + margin

    def x(self, at: float) -> float:
        part = (at - self.low) / (self.high - self.low)
        return round(_LEFT + (WIDTH - _LEFT - _RIGHT) * min(1.0, max(0.0, part)), 1)

    def shows(self, at: float) -> bool:
        return self.low <= at <= self.high


def svg_timeline(timeline: Timeline) -> str:
    """The picture: an SVG element that needs nothing beside it."""
    scale = _Scale(timeline)
    waits = _vain_waits(timeline, scale)
    bands = _bands(timeline, scale, {timeline.second.lane: len(waits) * _MARK})
    first, second = (_box_of(bands, timeline, bar) for bar in (timeline.first, timeline.second))
    bottom = bands[-1].y + bands[-1].height
    return render(
        "timeline.svg.j2",
        width=WIDTH,
        height=bottom + 56,
        bottom=bottom,
        top=_TOP,
        left=_LEFT,
        right=WIDTH - _RIGHT,
        bands=bands,
        steps=_steps(timeline, scale),
        marks=_marks(waits, scale, bands[timeline.second.lane]),
        first=first,
        second=second,
        head=second.x + _HEAD,
        tail=_tail(first, second),
        buffer=timeline.buffer,
        rows=", ".join(map(str, timeline.rows)),
    )


def _bands(timeline: Timeline, scale: _Scale, more: dict[int, int]) -> list[Band]:
    """more: lane -> height that is wanted below its bars"""
    bands, y = [], float(_TOP)
    for lane, name in enumerate(timeline.lanes):
        here = [bar for bar in timeline.bars if bar.lane == lane and scale.shows(bar.at)]
        labelled = _labelled([bar for bar in here if bar.role is not Role.OTHER])
        boxes = tuple(
            _box(bar, scale, y + _PADDING + number * _LINE) for number, bar in enumerate(labelled)
        )
        ticks = tuple(scale.x(bar.at) for bar in here if bar not in labelled)
        height = 2 * _PADDING + max(1, len(labelled)) * _LINE + more.get(lane, 0)
        bands.append(Band(name, y, height, ticks, boxes))
        y += height + 8
    return bands


def _labelled(bars: list[Bar]) -> list[Bar]:
    """The pair, and as many others of their band as there is room for."""
    pair = [bar for bar in bars if bar.role is not Role.BESIDE]
    others = [bar for bar in bars if bar.role is Role.BESIDE][: _BARS_MAX - len(pair)]
    return sorted([*pair, *others], key=lambda bar: bar.at)


def _box(bar: Bar, scale: _Scale, y: float) -> Box:
    x = scale.x(bar.at)
    end = scale.high if bar.until is None else bar.until
    width = 10.0 if bar.lane == HOST else max(10.0, scale.x(end) - x)
    label_x, anchor = (x - _HEAD, "end") if x > _LATE_X else (x, "start")
    return Box(x, y, width, label_x, anchor, bar.name, bar.touches, bar.role)


def _box_of(bands: list[Band], timeline: Timeline, bar: Bar) -> Box:
    role = bar.role.value
    return next(box for box in bands[bar.lane].boxes if box.role == role)


def _tail(first: Box, second: Box) -> tuple[float, float]:
    """Where the missing edge leaves the first: straight below or above the second if it is still
    in flight there.
    """
    middle = second.x + _HEAD
    is_in_flight = first.x <= middle <= first.x + first.width
    y = first.y if first.y > second.y else first.y + 9
    return (middle, y) if is_in_flight else (first.x + first.width, y)


def _steps(timeline: Timeline, scale: _Scale) -> list[Step]:
    steps = []
    number: int | None = None
    for bar in timeline.bars:
        is_next = bar.lane == HOST and bar.step not in (number, _BEFORE_STEPS)
        if is_next and scale.shows(bar.at):
            steps.append(Step(scale.x(bar.at), bar.step))
        number = bar.step if bar.lane == HOST else number
    return steps


def _vain_waits(timeline: Timeline, scale: _Scale) -> list[tuple[int, str]]:
    """(place, text) of waits of the second's lane that do not help."""
    second, late = timeline.second, timeline.late
    waits = [
        (arrow.at, f"wait {arrow.edge}: taken out")
        for arrow in timeline.arrows
        if arrow.is_dropped and arrow.orders_first and arrow.lane == second.lane
    ]
    if late is not None:
        waits.append((late.at, f"wait {late.edge}: too late"))
    return [wait for wait in waits if scale.shows(wait[0])]


def _marks(waits: list[tuple[int, str]], scale: _Scale, band: Band) -> list[Mark]:
    bottom = band.y + band.height
    marks = []
    for number, (at, text) in enumerate(waits):
        x = scale.x(at)
        anchor = "end" if x > _LATE_X else "start"
        marks.append(Mark(x, band.y, bottom, anchor, bottom - 13 - _MARK * number, text))
    return marks
