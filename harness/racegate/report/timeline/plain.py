"""A timeline as plain text: time runs down, a column for each lane of the pair.
Readable without colour, at most LINES_MAX lines of COLUMNS_MAX columns.
"""

from __future__ import annotations

from racegate.history.trace import HOST
from racegate.report.cause.pair import Relation
from racegate.report.timeline.model import Role, StepRows, Timeline
from racegate.report.timeline.moments import Moment, MomentKind, lanes_of, moments_of

LINES_MAX = 30
COLUMNS_MAX = 100
ROWS_SHOWN_MAX = 8
_STEP = 6  # columns of the step


def plain_timeline(timeline: Timeline) -> list[str]:
    """The lines of a picture. Where they are too many, the accesses beside the pair go first."""
    moments = list(moments_of(timeline))
    lines = _drawn(timeline, moments)
    while len(lines) > LINES_MAX:
        beside = [moment for moment in moments if moment.role is Role.BESIDE]
        if not beside:
            break
        moments.remove(beside[len(beside) // 2])
        lines = _drawn(timeline, moments)
        lines.append(f"{'':{_STEP}}... and other accesses of the same rows")
    return lines[:LINES_MAX]


def _drawn(timeline: Timeline, moments: list[Moment]) -> list[str]:
    pair = {timeline.first.lane, timeline.second.lane}
    lanes = sorted(pair | ({HOST} & set(lanes_of(timeline))))
    width = (COLUMNS_MAX - _STEP) // len(lanes)
    names = "".join(f"{timeline.lanes[lane]:{width}}" for lane in lanes)
    lines = [f"{'step':{_STEP}}{names}".rstrip()]
    for moment in moments:
        if moment.step_rows is not None:
            lines.append(_step_rows(moment.step_rows))
        elif moment.kind is MomentKind.MORE:
            lines.append(f"{'':{_STEP}}{moment.name}")
        elif moment.lane in lanes:
            lines += _moment(timeline, moment, lanes, width)
    return lines


def _step_rows(step_rows: StepRows) -> str:
    """Who sits where, and who moved."""
    rows = ", ".join(f"{row} {name}" for row, name in enumerate(step_rows.rows[:ROWS_SHOWN_MAX]))
    more = ", ..." if len(step_rows.rows) > ROWS_SHOWN_MAX else ""
    moves = "; ".join(move.text for move in step_rows.moves if move.row_from is not None)
    said = f"rows: {rows or 'none'}{more}{'; ' if moves else ''}{moves}"
    return f"{step_rows.step:>4}  {said}"[:COLUMNS_MAX]


def _moment(timeline: Timeline, moment: Moment, lanes: list[int], width: int) -> list[str]:
    """One moment, and below it what it does. In the other columns: what is in flight."""
    cells = [_in_flight(timeline, lane, moment.at) for lane in lanes]
    below = list(cells)
    column = lanes.index(moment.lane)
    mark = f"{cells[column]} " if cells[column] else ""
    cells[column] = mark + moment.name
    below[column] = f"{mark}  {moment.note}"
    drawn = [_row(cells, width), _row(below, width)]
    if moment.role is Role.SECOND and moment.kind is MomentKind.ACTION:
        drawn.append(f"{'':{_STEP}}{_verdict(timeline)}"[:COLUMNS_MAX])
    return drawn


def _verdict(timeline: Timeline) -> str:
    first = timeline.first
    if timeline.relation is Relation.ORDERED:
        return f"*** it comes behind {first.name} under every timing, and the value is wrong"
    return f"*** nothing orders it and {first.name}: either may come first"


def _in_flight(timeline: Timeline, lane: int, at: int) -> str:
    """`:` before an operation of the pair lands, `|` until the host knows of it."""
    for bar in (timeline.first, timeline.second):
        is_over = bar.until is not None and at >= bar.until
        if bar.lane == lane != HOST and bar.at < at and not is_over:
            return ":" if at < bar.landed else "|"
    return ""


def _row(cells: list[str], width: int) -> str:
    text = "".join(f"{cell[: width - 1]:{width}}" for cell in cells)
    return f"{'':{_STEP}}{text}".rstrip()
