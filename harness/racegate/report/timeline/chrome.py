"""A timeline in the trace event format of Chrome, which Perfetto and chrome://tracing open.

One thread per lane; what the host did is a slice, an operation of a stream an async slice from its
issue until the host knows that it is complete. Edges are flows; the missing one is a flow between
the pair, of the category `missing`. A unit of time is a place in the order of issue.

Format: Trace Event Format, the document linked from Perfetto's documentation on external formats.
"""

from __future__ import annotations

from typing import Any

import msgspec

from racegate.history.trace import HOST
from racegate.report.timeline.model import Arrow, Bar, Timeline

UNIT_US = 1_000  # one place in the order of issue
_PROCESS = 1

_Event = dict[str, Any]


def chrome_trace(timeline: Timeline) -> bytes:
    """The JSON object of a trace, with all of the run."""
    events = _names(timeline)
    end = max(bar.at for bar in timeline.bars) + 1
    for number, bar in enumerate(timeline.bars, start=1):
        events += _bar(bar, number, end)
    flows = len(timeline.bars)
    for number, arrow in enumerate(timeline.arrows, start=flows + 1):
        events += _arrow(arrow, number)
    events += _missing(timeline, flows + len(timeline.arrows) + 1)
    return msgspec.json.encode({"traceEvents": events, "displayTimeUnit": "ms"})


def _names(timeline: Timeline) -> list[_Event]:
    process = {"name": f"race on {timeline.buffer}"}
    events: list[_Event] = [{"ph": "M", "pid": _PROCESS, "name": "process_name", "args": process}]
    for lane, name in enumerate(timeline.lanes):
        whole = {"ph": "M", "pid": _PROCESS, "tid": lane}
        events.append({**whole, "name": "thread_name", "args": {"name": name}})
        events.append({**whole, "name": "thread_sort_index", "args": {"sort_index": lane}})
    return events


def _bar(bar: Bar, number: int, end: int) -> list[_Event]:
    facts: _Event = {"step": bar.step, "role": bar.role}
    if bar.touches:
        facts["touches"] = bar.touches
    common = {"name": bar.name, "cat": bar.role, "pid": _PROCESS, "tid": bar.lane}
    # Of an operation of a stream too, its issue: a flow begins and ends at slices.
    issue = {**common, **_slice((bar.at, bar.lane)), "args": facts}
    if bar.lane == HOST:
        return [issue]
    until = (end if bar.until is None else bar.until) * UNIT_US
    in_flight = {**common, "id": number, "name": f"{bar.name} in flight"}
    return [
        issue,
        {**in_flight, "ph": "b", "ts": bar.at * UNIT_US},
        {**in_flight, "ph": "e", "ts": until},
    ]


def _arrow(arrow: Arrow, number: int) -> list[_Event]:
    common = {
        "name": arrow.edge,
        "cat": "dropped" if arrow.is_dropped else "edge",
        "pid": _PROCESS,
    }
    start, end = (arrow.start, arrow.start_lane), (arrow.at, arrow.lane)
    return [
        {**common, **_slice(start), "name": f"record for {arrow.edge}"},
        {**common, **_slice(end), "name": f"wait: {arrow.edge}"},
        *_flow({**common, "id": number}, start, end),
    ]


def _slice(place: tuple[int, int]) -> _Event:
    at, lane = place
    return {"ph": "X", "ts": at * UNIT_US, "dur": UNIT_US, "tid": lane}


def _missing(timeline: Timeline, number: int) -> list[_Event]:
    first, second = timeline.first, timeline.second
    common = {
        "name": f"missing: nothing orders {first.name} and {second.name}",
        "cat": "missing",
        "pid": _PROCESS,
        "id": number,
    }
    return _flow(common, (first.at, first.lane), (second.at, second.lane))


def _flow(common: _Event, start: tuple[int, int], end: tuple[int, int]) -> list[_Event]:
    """Between the middles of two slices. start, end: (place, lane)"""
    middle = UNIT_US // 2
    return [
        {**common, "ph": "s", "ts": start[0] * UNIT_US + middle, "tid": start[1]},
        {**common, "ph": "f", "bp": "e", "ts": end[0] * UNIT_US + middle, "tid": end[1]},
    ]
