"""The recorded run of a program or a release in the trace event format of Chrome, as `chrome` has
that of our own engine.

A stream is a thread of the trace, and so is a host thread. A slice is an operation on its stream,
what asked for it on its host thread, an access, a wait, the record of an event; a range that the
program names (`record_function`, NVTX) is a slice around them, or one of its own where it may end
in another thread than it began (`range_start` of NVTX). A flow goes from the record of an
event to what waits for it, and, of the category `missing`, between the two of a conflict. A unit of
time is a place in the order in which all that was recorded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from racegate.history.finding import Race
from racegate.history.recorded.log import NOWHERE, LogKind, RecordedRun, RecordedStep
from racegate.report.timeline.chrome import UNIT_US, Event, flow, names_of

_PROCESS = 1
_RANGES = {LogKind.BEGIN: "B", LogKind.END: "E"}
_OWN_RANGES = (LogKind.OPEN, LogKind.CLOSE)


def recorded_trace(log: RecordedRun, races: Sequence[Race], title: str) -> bytes:
    """The JSON object of a trace. races: of the same run"""
    accesses = (LogKind.OPERATION, LogKind.ACCESS)
    places = {step.name: at for at, step in enumerate(log.steps) if step.kind in accesses}
    raced = {
        label: race.signature
        for race in reversed(races)
        for label in (race.first.label, race.second.label)
    }
    events = names_of(title, log.lanes)
    open_ranges: dict[int, int] = {}
    for at, step in enumerate(log.steps):
        if step.kind in _RANGES:
            events += _range(at, step, open_ranges)
        elif step.kind in _OWN_RANGES:
            events += _own_range(at, step, log)
        else:
            events += _step(at, step, log, raced.get(step.name, ""))
    for thread, count in open_ranges.items():
        end = {"ph": "E", "pid": _PROCESS, "tid": thread, "ts": len(log.steps) * UNIT_US}
        events += [end] * count
    for number, race in enumerate(races, start=len(log.steps) + 1):
        events += _between(race, log, places, number)
    return msgspec.json.encode({"traceEvents": events, "displayTimeUnit": "ms"})


def _range(at: int, step: RecordedStep, open_ranges: dict[int, int]) -> Iterator[Event]:
    """A range that ends and never began is left out."""
    count = open_ranges.get(step.thread, 0)
    if step.kind is LogKind.END and not count:
        return
    open_ranges[step.thread] = count + (1 if step.kind is LogKind.BEGIN else -1)
    common = {"ph": _RANGES[step.kind], "pid": _PROCESS, "tid": step.thread, "ts": at * UNIT_US}
    yield {**common, "name": step.name, "cat": "range"} if step.name else common


def _own_range(at: int, step: RecordedStep, log: RecordedRun) -> Iterator[Event]:
    """Both ends of a range, at its end: one that is never closed is left out."""
    if step.kind is LogKind.OPEN:
        return
    opened = log.steps[step.source]
    for place, end in ((step.source, "b"), (at, "e")):
        yield {
            **_at(place, opened.thread),
            "ph": end,
            "id": step.source + 1,
            "cat": "range",
            "name": opened.name,
        }


def _step(at: int, step: RecordedStep, log: RecordedRun, raced: str) -> Iterator[Event]:
    """raced: the signature of a conflict that it is one of the two of"""
    if step.kind is LogKind.MARK:
        yield {**_at(at, step.thread), "ph": "i", "s": "t", "name": step.name, "cat": "range"}
        return
    facts: Event = {"place": step.place} if step.place else {}
    if step.kind in (LogKind.OPERATION, LogKind.ACCESS):
        facts |= {"label": step.name, "bytes": step.nbytes}
    if raced:
        facts["conflict"] = raced
    name = step.name.partition("@")[0]
    whole = {**_at(at, step.lane), "ph": "X", "dur": UNIT_US, "args": facts}
    yield {**whole, "name": name, "cat": "conflict" if raced else step.kind}
    if step.kind is LogKind.OPERATION:
        asked = {**_at(at, step.thread), "ph": "X", "dur": UNIT_US}
        yield {**asked, "name": f"issue: {name}", "cat": "issue", "args": facts}
    if step.source != NOWHERE:
        source = log.steps[step.source]
        common = {"name": step.name, "cat": "edge", "pid": _PROCESS, "id": at + 1}
        yield from flow(common, (step.source, source.lane), (at, step.lane))


def _at(at: int, lane: int) -> Event:
    return {"pid": _PROCESS, "tid": lane, "ts": at * UNIT_US}


def _between(race: Race, log: RecordedRun, places: dict[str, int], number: int) -> Iterator[Event]:
    """The missing edge, where both of the two are in the log."""
    ends = [places.get(side.label, NOWHERE) for side in (race.first, race.second)]
    if NOWHERE in ends:
        return
    name = f"missing: nothing orders {race.first.operation} and {race.second.operation}"
    common = {"name": name, "cat": "missing", "pid": _PROCESS, "id": number}
    (start, first), (end, second) = [(at, log.steps[at].lane) for at in ends]
    yield from flow(common, (start, first), (end, second))
