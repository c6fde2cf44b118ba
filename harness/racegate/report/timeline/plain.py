"""A timeline as plain text: time runs down, a column for the host and one for each lane of the
pair. Readable without colour, at most LINES_MAX lines of COLUMNS_MAX columns.
"""

from __future__ import annotations

from typing import NamedTuple

from racegate.history.trace import HOST
from racegate.report.timeline.model import Arrow, Bar, Role, Timeline

LINES_MAX = 30
COLUMNS_MAX = 100
_STEP = 6  # columns of the step


class _Line(NamedTuple):
    """at: place in the order of issue; note: behind all columns"""

    at: int
    step: int
    lane: int
    text: str
    note: str = ""


def plain_timeline(timeline: Timeline) -> list[str]:
    """The lines between the pair, with what touches the same rows and the edges that matter."""
    lanes = sorted({HOST, timeline.first.lane, timeline.second.lane})
    width = (COLUMNS_MAX - _STEP) // len(lanes)
    lines = [_header(timeline, lanes, width)]
    shown = _chosen(timeline)
    hidden = len(shown) - (LINES_MAX - 2)
    if hidden > 0:
        middle = (LINES_MAX - 2) // 2
        shown = shown[:middle] + shown[-(LINES_MAX - 3 - middle) :]
    for index, line in enumerate(shown):
        if hidden > 0 and index == middle:
            lines.append(f"{'':{_STEP}}... {hidden + 1} more accesses of the same rows")
        lines += _drawn(timeline, line, lanes, width)
    return lines[:LINES_MAX]


def _header(timeline: Timeline, lanes: list[int], width: int) -> str:
    names = "".join(f"{timeline.lanes[lane]:{width}}" for lane in lanes)
    return f"{'step':{_STEP}}{names}".rstrip()


def _chosen(timeline: Timeline) -> list[_Line]:
    """What lies between the first of the pair and the wait that stands too late, or the second."""
    first, second, late = timeline.first, timeline.second, timeline.late
    end = second.at if late is None else late.at
    bars = [b for b in timeline.bars if b.role is not Role.OTHER and first.at <= b.at <= end]
    lines = [_Line(bar.at, bar.step, bar.lane, bar.name, bar.touches) for bar in bars]
    lines += [
        _Line(arrow.at, arrow.step, arrow.lane, f"wait: {arrow.edge}", _fate(arrow, second))
        for arrow in timeline.arrows
        if arrow.orders_first and arrow.lane == second.lane and first.at < arrow.at <= end
    ]
    return sorted(lines)


def _fate(arrow: Arrow, second: Bar) -> str:
    if arrow.is_dropped:
        return "taken out by the fault: orders nothing"
    return "too late: the pair is behind it" if arrow.at > second.at else "covers it"


def _drawn(timeline: Timeline, line: _Line, lanes: list[int], width: int) -> list[str]:
    """One event, and below it what it does. In the other columns: what is in flight."""
    first, second = timeline.first, timeline.second
    cells = []
    for lane in lanes:
        is_open = lane == first.lane and first.lane != HOST and first.at < line.at
        is_over = first.until is not None and line.at >= first.until
        cells.append("|" if is_open and not is_over else "")
    below = list(cells)
    column = lanes.index(line.lane)
    mark = "" if not cells[column] else "| "
    cells[column] = mark + line.text
    below[column] = f"{mark}  {line.note}"
    step = f"{line.step:>4}  "
    drawn = [_row(step, cells, width), _row("", below, width)]
    if line.at == second.at:
        drawn.append(f"{'':{_STEP}}*** nothing orders it and {first.name}: either may come first")
    return drawn


def _row(step: str, cells: list[str], width: int) -> str:
    text = "".join(f"{cell[: width - 1]:{width}}" for cell in cells)
    return f"{step:{_STEP}}{text}".rstrip()
