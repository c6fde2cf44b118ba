"""Programs of the model of streams, small ones and drawn ones, and what a device makes of them."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from itertools import product

import msgspec

from all_schedules import all_runs
from axioms import (
    Kind,
    Part,
    Point,
    Program,
    Statement,
    happens_before,
    outcomes,
    unordered,
)
from litmus_run import LITMUS_LANES, LitmusRun, Outcome
from racegate.device.virtual.device import VirtualDevice
from racegate.history.trace import HOST, HostAccess, OpRecord, Trace
from racegate.oracles.ordering import find_conflicts, has_unordered_query

# What every program of the device ends with: all is waited for, and all memory is looked at.
EPILOGUE = (
    Statement(kind=Kind.DEVICE_SYNC),
    Statement(kind=Kind.HOST_READ, source="h0"),
    Statement(kind=Kind.DOWNLOAD, stream="s0", target="h1", source="d0"),
    Statement(kind=Kind.STREAM_SYNC, stream="s0"),
    Statement(kind=Kind.HOST_READ, source="h1"),
)


_STREAM = r"(?P<stream>s\d|b\d|L)"
_FORMS = tuple(
    (re.compile(pattern), kind)
    for pattern, kind in (
        (r"(?P<target>[hp]\d)\[0\] = (?P<value>\d+)", Kind.HOST_WRITE),
        (r"read (?P<source>[hp]\d)\[0\]", Kind.HOST_READ),
        (r"wait (?P<event>\w+)", Kind.HOST_WAIT),
        (r"query (?P<event>\w+)", Kind.QUERY),
        (r"sync device", Kind.DEVICE_SYNC),
        (rf"sync {_STREAM}", Kind.STREAM_SYNC),
        (rf"{_STREAM}: record (?P<event>\w+)", Kind.RECORD),
        (rf"{_STREAM}: wait (?P<event>\w+)", Kind.STREAM_WAIT),
        (rf"{_STREAM}: (?P<target>d\d) <- (?P<source>h\d)", Kind.UPLOAD),
        (rf"{_STREAM}: (?P<target>h\d) <- (?P<source>d\d)", Kind.DOWNLOAD),
        (rf"{_STREAM}: (?P<target>d\d) <- (?P<source>p\d)", Kind.STAGED_UPLOAD),
        (rf"{_STREAM}: (?P<target>p\d) <- (?P<source>d\d)", Kind.WAITED_DOWNLOAD),
        (rf"{_STREAM}: (?P<target>d\d) = (?P<value>\d+)", Kind.FILL),
        (
            rf"{_STREAM}: (?P<target>d\d) = (?P<source>d\d) \* 3 \+ (?P<value>\d+)",
            Kind.COMPUTE,
        ),
    )
)


def read_program(text: str) -> Program | None:
    """Of statements in lines, or between semicolons, in the words of the litmus programs; blocking
    streams, the legacy one, pageable memory and `sync` are words of the model's own. None if there
    is a statement that the model does not know.
    """
    program = []
    for line in filter(None, map(str.strip, re.split("[;\n]", text))):
        found = [(match, kind) for form, kind in _FORMS if (match := form.fullmatch(line))]
        if not found:
            return None
        match, kind = found[0]
        named = match.groupdict()
        program.append(Statement(kind=kind, **{**named, "value": int(named.get("value", 0))}))
    return tuple(program)


def small_statements() -> list[Statement]:
    """Everything that two streams, one event, one pinned and one device cell allow; values are put
    in by place.
    """
    on_streams = [
        Statement(kind=kind, stream=stream, **named)
        for stream in ("s0", "s1")
        for kind, named in (
            (Kind.FILL, {"target": "d0"}),
            (Kind.UPLOAD, {"target": "d0", "source": "h0"}),
            (Kind.DOWNLOAD, {"target": "h0", "source": "d0"}),
            (Kind.RECORD, {"event": "e"}),
            (Kind.STREAM_WAIT, {"event": "e"}),
        )
    ]
    return [
        *on_streams,
        Statement(kind=Kind.HOST_WRITE, target="h0"),
        Statement(kind=Kind.HOST_READ, source="h0"),
        Statement(kind=Kind.HOST_WAIT, event="e"),
        Statement(kind=Kind.QUERY, event="e"),
    ]


def small_programs(length: int) -> Iterator[Program]:
    """All programs of so many small statements, one of each two that differ in the names of their
    streams only.
    """
    for chosen in product(small_statements(), repeat=length):
        streams = [one.stream for one in chosen if one.stream]
        if not streams or streams[0] == "s0":
            yield _told_apart(chosen)


def drawn_program(seed: int) -> Program:
    """A larger one: three streams, two events, two cells of each memory, 5 to 9 statements."""
    draw = random.Random(seed)
    kinds = [*(Kind.FILL, Kind.COMPUTE, Kind.UPLOAD, Kind.DOWNLOAD) * 2]
    kinds += [*(Kind.RECORD, Kind.STREAM_WAIT, Kind.HOST_WRITE) * 2]
    kinds += [Kind.HOST_READ, Kind.HOST_WAIT, Kind.STREAM_SYNC, Kind.QUERY, Kind.DEVICE_SYNC]
    return _told_apart([_drawn(draw, draw.choice(kinds)) for _ in range(draw.randint(5, 9))])


def _drawn(draw: random.Random, kind: Kind) -> Statement:
    stream, event = draw.choice(("s0", "s0", "s1", "s1", "s2")), draw.choice(("e", "f"))
    device, host = draw.choice(("d0", "d1")), draw.choice(("h0", "h1"))
    match kind:
        case Kind.FILL:
            return Statement(kind=kind, stream=stream, target=device)
        case Kind.COMPUTE:
            return Statement(kind=kind, stream=stream, target="d0", source="d1")
        case Kind.UPLOAD:
            return Statement(kind=kind, stream=stream, target=device, source=host)
        case Kind.DOWNLOAD:
            return Statement(kind=kind, stream=stream, target=host, source=device)
        case Kind.RECORD | Kind.STREAM_WAIT:
            return Statement(kind=kind, stream=stream, event=event)
        case Kind.HOST_WAIT | Kind.QUERY:
            return Statement(kind=kind, event=event)
        case Kind.HOST_WRITE:
            return Statement(kind=kind, target=host)
        case Kind.HOST_READ:
            return Statement(kind=kind, source=host)
        case Kind.STREAM_SYNC:
            return Statement(kind=kind, stream=stream)
        case _:
            return Statement(kind=kind)


def _told_apart(statements: Sequence[Statement]) -> Program:
    """Every write has a value of its own."""
    writes = (Kind.HOST_WRITE, Kind.FILL, Kind.COMPUTE)
    return tuple(
        msgspec.structs.replace(one, value=10 + number) if one.kind in writes else one
        for number, one in enumerate(statements)
    )


def as_litmus(program: Program) -> list[tuple[int, str]]:
    """In the language of the litmus programs of a device, with the number of each line's statement.
    Waits for a stream or for all are waits for events that nobody else records.
    """
    return [(number, line) for number, one in enumerate(program) for line in _lines(number, one)]


def _lines(number: int, one: Statement) -> list[str]:
    match one.kind:
        case Kind.HOST_WRITE:
            return [f"{one.target}[0] = {one.value}"]
        case Kind.HOST_READ:
            return [f"read {one.source}[0]"]
        case Kind.FILL:
            return [f"{one.stream}: {one.target} = {one.value}"]
        case Kind.COMPUTE:
            return [f"{one.stream}: {one.target} = {one.source} * 3 + {one.value}"]
        case Kind.UPLOAD | Kind.DOWNLOAD:
            return [f"{one.stream}: {one.target} <- {one.source}"]
        case Kind.RECORD:
            return [f"{one.stream}: record {one.event}"]
        case Kind.STREAM_WAIT:
            return [f"{one.stream}: wait {one.event}"]
        case Kind.HOST_WAIT:
            return [f"wait {one.event}"]
        case Kind.QUERY:
            return [f"query {one.event}"]
        case Kind.STREAM_SYNC | Kind.DEVICE_SYNC:
            lanes = LITMUS_LANES if one.kind is Kind.DEVICE_SYNC else (one.stream,)
            names = {lane: f"all{number}{lane}" for lane in lanes}
            return [f"{lane}: record {name}" for lane, name in names.items()] + [
                f"wait {name}" for name in names.values()
            ]
    raise AssertionError(f"a device of litmus programs has no {one.kind}")


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """A program on the virtual device beside the model. schedules: how many runs were made

    differences: in words; none, if the device does what the model says
    """

    schedules: int
    is_racy: bool
    outcomes: int
    differences: tuple[str, ...]


def compared(program: Program) -> Comparison:
    """Every schedule of the virtual device against every execution of the model, the order that is
    recorded against the model's in each of the runs, and the conflicts that it finds.
    """
    whole = (*program, *EPILOGUE)
    allowed, racing = outcomes(whole), unordered(whole)
    lines = as_litmus(whole)
    text = "\n".join(line for _, line in lines)
    runs = all_runs(lambda s: LitmusRun(VirtualDevice(LITMUS_LANES, chooser=s)).run(text))
    seen: frozenset[Outcome] = frozenset(outcome for outcome, _ in runs)
    found = [
        *(f"the device shows {one}, the model does not" for one in sorted(seen - allowed)),
        *(f"the model allows {one}, no schedule shows it" for one in sorted(allowed - seen)),
    ]
    proved = [t for _, t in runs if not find_conflicts(t) and not has_unordered_query(t)]
    if proved and len(allowed) > 1:
        found.append(f"a run is proved, and the model allows {sorted(allowed)}")
    numbers = [number for number, _ in lines]
    for trace in {trace.events: trace for _, trace in runs}.values():
        found += _order_differences(whole, trace, numbers)
        pairs = {(numbers[c.first.step], numbers[c.second.step]) for c in find_conflicts(trace)}
        if bool(pairs) != bool(racing) or not pairs <= racing:
            found.append(f"conflicts {sorted(pairs)}, the model has {sorted(racing)}")
    return Comparison(
        schedules=len(runs),
        is_racy=bool(racing),
        outcomes=len(allowed),
        differences=tuple(dict.fromkeys(found)),
    )


def _order_differences(program: Program, trace: Trace, numbers: Sequence[int]) -> list[str]:
    """Pairs of accesses that the recorder calls ordered and the model does not, or the other way
    round. numbers: by line the number of its statement
    """
    before = happens_before(program)
    events = [event for event in trace.events if isinstance(event, OpRecord | HostAccess)]
    events = [event for event in events if event.step >= 0 and "create" not in event.name]
    found = []
    for at, second in enumerate(events):
        for first in events[:at]:
            points = [_point(event, numbers) for event in (first, second)]
            is_recorded = second.clock[first.lane] >= first.seq
            if is_recorded != (points[0] in before[points[1]]):
                word = "ordered" if is_recorded else "unordered"
                found.append(f"{first.name} and {second.name} are recorded as {word}")
    return found


def _point(event: OpRecord | HostAccess, numbers: Sequence[int]) -> Point:
    return Point(numbers[event.step], Part.CALL if event.lane == HOST else Part.OPERATION)
