"""A timeline as a picture: time runs down, a column for each lane shown, two at least, or one for
all of them on a phone; the missing edge red and dashed.

Every moment has a line of its own, so no label covers another. What is cut ends in an ellipsis.
"""

from __future__ import annotations

import textwrap
from enum import StrEnum
from typing import NamedTuple

from racegate.history.trace import HOST
from racegate.report.cause.pair import Relation
from racegate.report.templating import render
from racegate.report.timeline.model import Arrow, Bar, StepRows, Timeline
from racegate.report.timeline.moments import Moment, MomentKind, lanes_of, moments_of

_RAIL = 18  # left in a column: what is in flight
_STEP_HEIGHT = 34
_WAIT_HEIGHT = 34
_MORE_HEIGHT = 16
_GAP = 10
_CHIP_MAX = 6  # characters of a request in its chip
_CHIPS_MAX = 10
_EDGES_MAX = 4
_HUES = 6
_LINE_HEIGHT, _LETTER_WIDTH = 16, 8


class LaneLayout(StrEnum):
    """How lanes stand: side by side, or all in one column."""

    COLUMNS = "columns"
    COLUMN = "column"


class _Sizes(NamedTuple):
    """Of a layout. column: of a lane; gutter: between lanes, what leads from one to the other
    side: right of all, for what leads from a box to one below it; top: of the first moment
    name_max, note_max: characters that fit a box
    """

    margin: int
    column: int
    gutter: int
    side: int
    top: int
    box_height: int
    name_max: int
    note_max: int


_SIZES = {
    LaneLayout.COLUMNS: _Sizes(16, 280, 36, 0, 46, 40, 30, 36),
    LaneLayout.COLUMN: _Sizes(8, 316, 0, 34, 10, 56, 35, 42),
}


class Box(NamedTuple):
    """A moment of a lane. role: a class of the picture; title: all of its text, where it is cut

    lane: its name, where the column does not say it
    """

    x: float
    y: float
    width: float
    height: float
    name: str
    note: str
    role: str
    title: str
    lane: str


class Chip(NamedTuple):
    """Who sits in a row. role: "row" for a row of the pair; hue: by request"""

    x: float
    width: float
    text: str
    role: str
    hue: int
    title: str


class Strip(NamedTuple):
    """A step begins: its number, who sits where and who moved."""

    y: float
    step: int
    chips: tuple[Chip, ...]
    said: str
    said_x: float


class Rail(NamedTuple):
    """An operation in flight. role: held, or landed and the host does not know of it yet"""

    x: float
    top: float
    bottom: float
    role: str


class Link(NamedTuple):
    """An edge. path: its line; head: the points of its tip; role: edge, dropped or missing"""

    path: str
    head: str
    role: str
    title: str


class _Grid(NamedTuple):
    """Where moments stand. lanes: those shown; tops: of the moments, in their order"""

    layout: LaneLayout
    lanes: tuple[int, ...]
    moments: tuple[Moment, ...]
    tops: tuple[float, ...]
    bottom: float

    @property
    def sizes(self) -> _Sizes:
        """Of its layout."""
        return _SIZES[self.layout]

    @property
    def box_width(self) -> int:
        """Of a moment, in its column."""
        return self.sizes.column - _RAIL - 10

    def x(self, lane: int) -> float:
        """The left of a lane's column."""
        place = 0 if self.layout is LaneLayout.COLUMN else self.lanes.index(lane)
        return self.sizes.margin + place * (self.sizes.column + self.sizes.gutter)

    @property
    def width(self) -> float:
        """Of the picture."""
        right = self.x(self.lanes[-1]) + self.sizes.column
        return right + self.sizes.side + self.sizes.margin

    def height_of(self, moment: Moment) -> float:
        """Of what is drawn of it."""
        if moment.kind is MomentKind.STEP:
            return _STEP_HEIGHT
        if moment.kind is MomentKind.MORE:
            return _MORE_HEIGHT
        return _WAIT_HEIGHT if moment.kind is MomentKind.WAIT else self.sizes.box_height

    def y(self, at: int) -> float:
        """The height of a place in the order of issue: between the moments around it."""
        before = [i for i, m in enumerate(self.moments) if m.at <= at and m.step_rows is None]
        if not before:
            return self.sizes.top + _STEP_HEIGHT
        return self.tops[before[-1]] + self.height_of(self.moments[before[-1]])

    def top_of(self, bar: Bar, kind: MomentKind) -> float:
        """Where the moment of a bar is drawn."""
        return next(
            top
            for top, m in zip(self.tops, self.moments, strict=True)
            if m.kind is kind and m.bar is not None and m.bar.at == bar.at
        )


def svg_timeline(timeline: Timeline) -> str:
    """The picture: an SVG element that needs nothing beside it."""
    return _rendered(timeline, "timeline.svg.j2")


def svg_inside(timeline: Timeline, layout: LaneLayout = LaneLayout.COLUMNS) -> str:
    """The same without its colours, for a page that has them."""
    return _rendered(timeline, "drawing.svg.j2", layout)


def _rendered(timeline: Timeline, template: str, layout: LaneLayout = LaneLayout.COLUMNS) -> str:
    grid = _grid(timeline, layout)
    fitting = int((grid.width - 2 * grid.sizes.margin) / _LETTER_WIDTH)
    said = [line for text in _verdict(timeline) for line in _lines(text, fitting)]
    is_columns = layout is LaneLayout.COLUMNS
    return render(
        template,
        layout=layout,
        width=grid.width,
        height=grid.bottom + _LINE_HEIGHT * (len(said) + 1) + 12,
        bottom=grid.bottom,
        columns=[(grid.x(lane), timeline.lanes[lane]) for lane in grid.lanes] if is_columns else [],
        column_width=grid.sizes.column,
        strips=_strips(timeline, grid),
        rails=_rails(timeline, grid),
        boxes=_boxes(timeline, grid),
        links=[*_edges(timeline, grid), _pair_link(timeline, grid)],
        said=[(grid.bottom + _LINE_HEIGHT * number, text) for number, text in enumerate(said, 1)],
        is_race=timeline.relation is Relation.UNORDERED,
        first=timeline.first,
        second=timeline.second,
        buffer=timeline.buffer,
    )


def _lines(text: str, columns: int) -> list[str]:
    return textwrap.wrap(text, columns, break_on_hyphens=False) or [""]


def _grid(timeline: Timeline, layout: LaneLayout) -> _Grid:
    shown = set(lanes_of(timeline))
    lanes = tuple(sorted(shown if len(shown) > 1 else {HOST, *shown}))
    empty = _Grid(layout, lanes, moments_of(timeline), (), 0.0)
    tops, y = [], float(empty.sizes.top)
    for moment in empty.moments:
        tops.append(y)
        y += empty.height_of(moment) + _GAP
    return empty._replace(tops=tuple(tops), bottom=y)


def _boxes(timeline: Timeline, grid: _Grid) -> list[Box]:
    boxes, sizes = [], grid.sizes
    for top, moment in zip(grid.tops, grid.moments, strict=True):
        if moment.step_rows is not None:
            continue
        lane = moment.lane if moment.lane in grid.lanes else grid.lanes[0]
        role = moment.role.value
        is_action = moment.kind not in (MomentKind.WAIT, MomentKind.MORE)
        if not is_action:
            role = moment.kind.value
        elif moment.bar is not None and moment.bar.landed > moment.bar.at:
            role += " landing" if moment.kind is MomentKind.LANDING else " held"
        is_told = is_action and grid.layout is LaneLayout.COLUMN
        boxes.append(
            Box(
                x=grid.x(lane) + _RAIL,
                y=top,
                width=grid.box_width,
                height=grid.height_of(moment),
                name=_cut(moment.name, sizes.name_max),
                note=_cut(moment.note, sizes.note_max),
                role=role,
                title=f"{moment.name}: {moment.note}" if moment.note else moment.name,
                lane=_cut(timeline.lanes[lane], sizes.note_max) if is_told else "",
            )
        )
    return boxes


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _strips(timeline: Timeline, grid: _Grid) -> list[Strip]:
    hues = hues_of(timeline)
    strips = []
    for top, moment in zip(grid.tops, grid.moments, strict=True):
        if moment.step_rows is None:
            continue
        chips = _chips(timeline, moment.step_rows, hues, grid)
        end = chips[-1].x + chips[-1].width + 12 if chips else grid.sizes.margin + 70.0
        room = int((grid.width - end - grid.sizes.margin) / 6.2)
        said = "; ".join(m.short for m in moment.step_rows.moves if m.row_from is not None)
        strips.append(Strip(top, moment.step, chips, _cut(said, max(0, room)), end))
    return strips


def hues_of(timeline: Timeline) -> dict[str, int]:
    """Request -> the number of its colour."""
    names = dict.fromkeys(name for at_step in timeline.step_rows for name in at_step.rows)
    return {name: number % _HUES for number, name in enumerate(names)}


def _chips(
    timeline: Timeline, step_rows: StepRows, hues: dict[str, int], grid: _Grid
) -> tuple[Chip, ...]:
    """As many as there is room for; then one that says how many are left out."""
    chips: list[Chip] = []
    x, end = grid.sizes.margin + 62.0, grid.width - grid.sizes.margin - 44
    for row, name in enumerate(step_rows.rows):
        text = f"{row} {_cut(name, _CHIP_MAX)}"
        width = 14 + 7.4 * len(text)
        if row == _CHIPS_MAX or x + width > end:
            left = len(step_rows.rows) - row
            chips.append(Chip(x, 40, f"+{left}", "chip", 0, f"{left} more rows"))
            break
        is_raced = timeline.noun == "row" and row in timeline.rows
        role = "chip row" if is_raced else "chip"
        chips.append(Chip(x, width, text, role, hues[name], f"row {row}: request {name}"))
        x += width + 5
    return tuple(chips)


def _rails(timeline: Timeline, grid: _Grid) -> list[Rail]:
    """Of the pair: dashed until it lands, a line until the host knows of it."""
    rails = []
    for offset, bar in enumerate((timeline.first, timeline.second)):
        if bar.lane == HOST:
            continue
        x = grid.x(bar.lane) + 6 + 6 * offset
        issued = grid.top_of(bar, MomentKind.ACTION) + 4
        end = grid.bottom if bar.until is None else min(grid.bottom, grid.y(bar.until))
        landed = issued
        if _is_landing_shown(grid, bar):
            landed = grid.top_of(bar, MomentKind.LANDING) + 4
            rails.append(Rail(x, issued, landed, "held"))
        if end > landed:
            rails.append(Rail(x, landed, end, "landed"))
    return rails


def _is_landing_shown(grid: _Grid, bar: Bar) -> bool:
    landings = [m for m in grid.moments if m.kind is MomentKind.LANDING and m.bar is not None]
    return any(m.bar is not None and m.bar.at == bar.at for m in landings)


def _pair_link(timeline: Timeline, grid: _Grid) -> Link:
    """The missing edge, from where the first lands to the second; or the way of the value."""
    first, second = timeline.first, timeline.second
    kind = MomentKind.LANDING if _is_landing_shown(grid, first) else MomentKind.ACTION
    start = grid.top_of(first, kind) + grid.sizes.box_height / 2
    end = grid.top_of(second, MomentKind.ACTION) + grid.sizes.box_height / 2
    is_race = timeline.relation is Relation.UNORDERED
    role, title = ("missing", "the missing edge") if is_race else ("value", "the wrong value")
    return _link(grid, (first.lane, start), (second.lane, end), role, title)


def _edges(timeline: Timeline, grid: _Grid) -> list[Link]:
    """Edges that are there, between lanes shown, and that a shown wait is the end of."""
    links = []
    waits = {m.arrow: top for top, m in zip(grid.tops, grid.moments, strict=True) if m.arrow}
    for arrow, top in list(waits.items())[:_EDGES_MAX]:
        if arrow.start_lane in grid.lanes and arrow.start_lane != arrow.lane:
            start = (arrow.start_lane, _start_of(timeline, grid, arrow))
            role = "dropped" if arrow.is_dropped else "edge"
            end = (arrow.lane, top + _WAIT_HEIGHT / 2)
            links.append(_link(grid, start, end, role, f"edge {arrow.edge}"))
    return links


def _start_of(timeline: Timeline, grid: _Grid, arrow: Arrow) -> float:
    """Where an event was recorded: behind the landing of the first, if that is what it covers."""
    first = timeline.first
    y = grid.y(arrow.start)
    if arrow.start_lane == first.lane and _is_landing_shown(grid, first):
        y = max(y, grid.top_of(first, MomentKind.LANDING) + grid.sizes.box_height)
    return y


def _link(
    grid: _Grid, start: tuple[int, float], end: tuple[int, float], role: str, title: str
) -> Link:
    """start, end: (lane, height)"""
    (lane_1, y1), (lane_2, y2) = start, end
    if lane_1 == lane_2 or grid.layout is LaneLayout.COLUMN:
        x = grid.x(lane_1) + _RAIL + grid.box_width
        return Link(
            f"M{x} {y1} C{x + 30} {y1} {x + 30} {y2} {x + 6} {y2}",
            _head(x, y2, -1),
            role,
            title,
        )
    is_right = lane_2 > lane_1
    side = 1 if is_right else -1
    ends = _RAIL, _RAIL + grid.box_width
    x1 = grid.x(lane_1) + ends[is_right]
    x2 = grid.x(lane_2) + ends[not is_right]
    tip = x2 - 6 * side
    middle = (x1 + tip) / 2
    path = f"M{x1} {y1} C{middle} {y1} {middle} {y2} {tip} {y2}"
    return Link(path, _head(x2, y2, side), role, title)


def _head(x: float, y: float, side: int) -> str:
    """The tip of an arrow that comes to (x, y) from the left (side 1) or from the right."""
    back = x - 9 * side
    return f"{x},{y} {back},{y - 5} {back},{y + 5}"


def _verdict(timeline: Timeline) -> tuple[str, str]:
    """What is wrong, and where."""
    rows = ", ".join(map(str, timeline.rows[:8]))
    plural = "s" if len(timeline.rows) > 1 else ""
    where = f"{timeline.noun}{plural} {rows} of {timeline.buffer}" if rows else timeline.buffer
    if timeline.relation is Relation.ORDERED:
        return "wrong under every timing: no edge is missing", where
    names = f"{timeline.first.name} and {timeline.second.name}"
    return f"missing: nothing orders {names}", where
