"""A timeline in the trace event format of Chrome, which Perfetto and chrome://tracing open.

One thread per lane; what the host did is a slice, an operation of a stream an async slice from its
issue until the host knows that it is complete, and one of the category `held` as long as a hold
keeps it. A request that changes its row is an instant. Edges are flows; the missing one is a flow
between the pair, of the category `missing`. A unit of time is a place in the order of issue.

Format: Trace Event Format, the document linked from Perfetto's documentation on external formats.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from racegate.history.trace import HOST
from racegate.report.cause.pair import Relation
from racegate.report.cause.row_assignment import Move
from racegate.report.timeline.model import Arrow, Bar, StepRows, Timeline

UNIT_US = 1_000  # one place in the order of issue
_PROCESS = 1

Event = dict[str, object]


def chrome_trace(timeline: Timeline) -> bytes:
    """The JSON object of a trace, with all of the run."""
    events = names_of(f"{timeline.relation} accesses of {timeline.buffer}", timeline.lanes)
    end = max(bar.at for bar in timeline.bars) + 1
    for number, bar in enumerate(timeline.bars, start=1):
        events += _bar(bar, number, end)
    flows = len(timeline.bars)
    for number, arrow in enumerate(timeline.arrows, start=flows + 1):
        events += _arrow(arrow, number)
    flows += len(timeline.arrows)
    events += _between_the_pair(timeline, flows + 1)
    held = [bar for bar in timeline.bars if bar.landed > bar.at]
    for number, bar in enumerate(held, start=flows + 2):
        events += _held(bar, number)
    events += [_moved(at_step, move) for at_step in timeline.step_rows for move in at_step.moves]
    return msgspec.json.encode({"traceEvents": events, "displayTimeUnit": "ms"})


def names_of(title: str, lanes: Sequence[str]) -> list[Event]:
    """The lanes as threads of one process, in their order."""
    process = {"name": title}
    events: list[Event] = [{"ph": "M", "pid": _PROCESS, "name": "process_name", "args": process}]
    for lane, name in enumerate(lanes):
        whole = {"ph": "M", "pid": _PROCESS, "tid": lane}
        events.append({**whole, "name": "thread_name", "args": {"name": name}})
        events.append({**whole, "name": "thread_sort_index", "args": {"sort_index": lane}})
    return events


def _bar(bar: Bar, number: int, end: int) -> list[Event]:
    facts: Event = {"step": bar.step, "role": bar.role}
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


def _arrow(arrow: Arrow, number: int) -> list[Event]:
    common = {
        "name": arrow.edge,
        "cat": "dropped" if arrow.is_dropped else "edge",
        "pid": _PROCESS,
    }
    start, end = (arrow.start, arrow.start_lane), (arrow.at, arrow.lane)
    return [
        {**common, **_slice(start), "name": f"record for {arrow.edge}"},
        {**common, **_slice(end), "name": f"wait: {arrow.edge}"},
        *flow({**common, "id": number}, start, end),
    ]


def _slice(place: tuple[int, int]) -> Event:
    at, lane = place
    return {"ph": "X", "ts": at * UNIT_US, "dur": UNIT_US, "tid": lane}


def _between_the_pair(timeline: Timeline, number: int) -> list[Event]:
    """The missing edge; of a pair that is ordered, the way of the wrong value."""
    first, second = timeline.first, timeline.second
    name, category = f"missing: nothing orders {first.name} and {second.name}", "missing"
    if timeline.relation is Relation.ORDERED:
        name, category = f"wrong value: {first.name} and {second.name}", "value"
    common = {"name": name, "cat": category, "pid": _PROCESS, "id": number}
    return flow(common, (first.at, first.lane), (second.at, second.lane))


def _held(bar: Bar, number: int) -> list[Event]:
    name = f"{bar.name} held until {bar.held}" if bar.held else f"{bar.name} behind a held one"
    common = {"name": name, "cat": "held", "pid": _PROCESS, "tid": bar.lane, "id": number}
    return [
        {**common, "ph": "b", "ts": bar.at * UNIT_US},
        {**common, "ph": "e", "ts": bar.landed * UNIT_US},
    ]


def _moved(step_rows: StepRows, move: Move) -> Event:
    return {
        "name": move.text,
        "cat": "row",
        "ph": "i",
        "s": "p",
        "pid": _PROCESS,
        "tid": HOST,
        "ts": step_rows.at * UNIT_US,
    }


def flow(common: Event, start: tuple[int, int], end: tuple[int, int]) -> list[Event]:
    """Between the middles of two slices. start, end: (place, lane)"""
    middle = UNIT_US // 2
    return [
        {**common, "ph": "s", "ts": start[0] * UNIT_US + middle, "tid": start[1]},
        {**common, "ph": "f", "bp": "e", "ts": end[0] * UNIT_US + middle, "tid": end[1]},
    ]
