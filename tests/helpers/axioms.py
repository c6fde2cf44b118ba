"""The axioms of streams and events, executable: what a small program of one host thread may show.

docs/model.md has the same rules in words and in mathematics. A program is a list of statements.
Each becomes one to three *points*: the host's call, the operation on its stream, the host's return.
Each rule is one function that says which points come before which; their transitive closure is
*happens-before*. An execution is any order of all points that contains it, and every read shows the
write that comes last before it in the execution; records and waits of streams take no time in it.
Nothing of `racegate` is used here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import pairwise

import msgspec

LEGACY = "L"  # the legacy default stream; streams `b0`, `b1` are blocking, all others are not
Outcome = tuple[int, ...]  # what the reads and queries of a program saw, in order


class Kind(StrEnum):
    """What a statement does. Pinned copies are those of pinned memory with a non-blocking call."""

    HOST_WRITE = "host write"
    HOST_READ = "host read"
    FILL = "fill"
    COMPUTE = "compute"
    UPLOAD = "upload"
    DOWNLOAD = "download"
    STAGED_UPLOAD = "upload of pageable memory"
    WAITED_DOWNLOAD = "download to pageable memory"
    RECORD = "record"
    STREAM_WAIT = "stream wait"
    HOST_WAIT = "host wait"
    QUERY = "query"
    STREAM_SYNC = "stream synchronize"
    DEVICE_SYNC = "device synchronize"


ON_STREAM = frozenset(Kind) - {
    Kind.HOST_WRITE,
    Kind.HOST_READ,
    Kind.HOST_WAIT,
    Kind.QUERY,
    Kind.STREAM_SYNC,
    Kind.DEVICE_SYNC,
}
RETURNS_LATE = frozenset({Kind.HOST_WAIT, Kind.STREAM_SYNC, Kind.DEVICE_SYNC, Kind.WAITED_DOWNLOAD})


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """One statement. stream, event, target, source: names, empty where it has none

    target, source: memory, one cell each: `h0` pinned, `p0` pageable, `d0` on the device
    value: what a host write or a fill puts there; a compute puts three times its source and this
    """

    kind: Kind
    stream: str = ""
    event: str = ""
    target: str = ""
    source: str = ""
    value: int = 0


class Part(StrEnum):
    """Which of a statement's points: its call, its operation, its return."""

    CALL = "call"
    OPERATION = "operation"
    RETURN = "return"


class Point(msgspec.Struct, frozen=True):
    """Something that happens at once. statement: the number of its statement"""

    statement: int
    part: Part


Program = Sequence[Statement]
Edge = tuple[Point, Point]
Rule = Callable[[Program], Iterator[Edge]]


def points_of(program: Program) -> list[Point]:
    """All points, in the order in which one statement after the other would make them."""
    points = []
    for number, one in enumerate(program):
        points.append(Point(number, Part.CALL))
        if one.kind in ON_STREAM:
            points.append(Point(number, Part.OPERATION))
        if one.kind in RETURNS_LATE:
            points.append(Point(number, Part.RETURN))
    return points


def program_order(program: Program) -> Iterator[Edge]:
    """P. The host does one thing after the other, and calls before it returns."""
    host = [point for point in points_of(program) if point.part is not Part.OPERATION]
    yield from pairwise(host)


def issue(program: Program) -> Iterator[Edge]:
    """I. An operation comes after the call that issues it."""
    for number, _ in _on_streams(program):
        yield Point(number, Part.CALL), Point(number, Part.OPERATION)


def stream_order(program: Program) -> Iterator[Edge]:
    """S. A stream does one operation after the other, in the order of their calls."""
    last: dict[str, int] = {}
    for number, one in _on_streams(program):
        if one.stream in last:
            yield _operation(last[one.stream]), _operation(number)
        last[one.stream] = number


def stream_waits(program: Program) -> Iterator[Edge]:
    """W. A stream's wait comes after the latest record of its event before the call; if there is
    none, after nothing.
    """
    for number, one in enumerate(program):
        recorded = _latest_record(program, number)
        if one.kind is Kind.STREAM_WAIT and recorded is not None:
            yield _operation(recorded), _operation(number)


def host_waits(program: Program) -> Iterator[Edge]:
    """H. A host wait returns after what it waits for: a record, a stream (with the legacy one the
    blocking streams too, and not the other way round), all streams.
    """
    for number, one in enumerate(program):
        back = Point(number, Part.RETURN)
        recorded = _latest_record(program, number)
        if one.kind is Kind.HOST_WAIT and recorded is not None:
            yield _operation(recorded), back
        for earlier, other in _on_streams(program[:number]):
            is_legacy = one.stream == LEGACY and is_blocking(other.stream)
            is_meant = one.kind is Kind.STREAM_SYNC and (other.stream == one.stream or is_legacy)
            if is_meant or one.kind is Kind.DEVICE_SYNC:
                yield _operation(earlier), back


def implicit_waits(program: Program) -> Iterator[Edge]:
    """C. A copy to pageable memory returns after it is done."""
    for number, one in enumerate(program):
        if one.kind is Kind.WAITED_DOWNLOAD:
            yield _operation(number), Point(number, Part.RETURN)


def legacy_stream(program: Program) -> Iterator[Edge]:
    """L. The legacy default stream and the blocking streams wait for each other. A wait for an
    event that was never recorded is nothing to wait for.
    """
    acting = [
        (number, one.stream)
        for number, one in _on_streams(program)
        if one.kind is not Kind.STREAM_WAIT or _latest_record(program, number) is not None
    ]
    for at, (number, stream) in enumerate(acting):
        for earlier, other in acting[:at]:
            legacy = [name == LEGACY for name in (stream, other)]
            if any(legacy) and (is_blocking(stream) or is_blocking(other)):
                yield _operation(earlier), _operation(number)


RULES: dict[str, Rule] = {
    "P": program_order,
    "I": issue,
    "S": stream_order,
    "W": stream_waits,
    "H": host_waits,
    "C": implicit_waits,
    "L": legacy_stream,
}


def is_blocking(stream: str) -> bool:
    """Whether a stream was made without the flag that keeps it apart from the default stream."""
    return stream.startswith("b")


def _operation(number: int) -> Point:
    return Point(number, Part.OPERATION)


def _on_streams(program: Program) -> Iterator[tuple[int, Statement]]:
    return ((n, one) for n, one in enumerate(program) if one.kind in ON_STREAM)


def _latest_record(program: Program, number: int) -> int | None:
    """The statement that recorded the event of another one last before it."""
    event = program[number].event
    records = [
        earlier
        for earlier, one in enumerate(program[:number])
        if one.kind is Kind.RECORD and one.event == event
    ]
    return records[-1] if records else None


def happens_before(
    program: Program, rules: Sequence[str] = tuple(RULES), *, more: Iterable[Edge] = ()
) -> dict[Point, set[Point]]:
    """By point all that come before it in every execution. rules: the letters of those in force;
    more: edges that a repair of the program would add, each to a later point
    """
    edges = [edge for letter in rules for edge in RULES[letter](program)]
    edges += more
    before: dict[Point, set[Point]] = {point: set() for point in points_of(program)}
    for first, second in edges:
        before[second].add(first)
    for point in before:  # every edge leads on in this order, so one pass closes it
        for earlier in tuple(before[point]):
            before[point] |= before[earlier]
    return before


class Access(msgspec.Struct, frozen=True):
    """One use of memory by a point."""

    point: Point
    memory: str
    is_write: bool


def accesses_of(program: Program) -> list[Access]:
    """Which points touch which memory. Pageable memory is read by the call and written before the
    return, so that nothing on a stream touches it after the host has gone on.
    """
    found = []
    for number, one in enumerate(program):
        call, operation = Point(number, Part.CALL), Point(number, Part.OPERATION)
        reader = call if one.kind in (Kind.HOST_READ, Kind.STAGED_UPLOAD) else operation
        writer = call if one.kind is Kind.HOST_WRITE else operation
        if one.source:
            found.append(Access(reader, one.source, is_write=False))
        if one.target:
            found.append(Access(writer, one.target, is_write=True))
    return found


def edges_between(program: Program, pairs: Iterable[tuple[int, int]]) -> list[Edge]:
    """From the accesses of one statement of each pair to those of the other."""
    points: dict[int, list[Point]] = {}
    for access in accesses_of(program):
        points.setdefault(access.point.statement, []).append(access.point)
    return [
        (first, second) for one, other in pairs for first in points[one] for second in points[other]
    ]


def unordered(
    program: Program, rules: Sequence[str] = tuple(RULES), *, more: Iterable[Edge] = ()
) -> set[tuple[int, int]]:
    """Pairs of statements that touch common memory, one of them writing, in no order. more: as of
    `happens_before`
    """
    before = happens_before(program, rules, more=more)
    accesses = accesses_of(program)
    return {
        (one.point.statement, other.point.statement)
        for at, one in enumerate(accesses)
        for other in accesses[at + 1 :]
        if one.memory == other.memory
        and (one.is_write or other.is_write)
        and one.point not in before[other.point]
        and other.point not in before[one.point]
        and one.point != other.point
    }


class _State(msgspec.Struct, frozen=True):
    """Where an execution stands: what has happened, what memory holds, what was staged."""

    done: frozenset[Point]
    memory: tuple[tuple[str, int], ...]
    staged: tuple[tuple[int, int], ...]


def outcomes(program: Program, rules: Sequence[str] = tuple(RULES)) -> frozenset[Outcome]:
    """What the reads and queries of all executions see. Records and waits of streams take no time:
    they happen with the last point that they come after.
    """
    before = happens_before(program, rules)
    no_work = {
        _operation(number)
        for number, one in _on_streams(program)
        if one.kind in (Kind.RECORD, Kind.STREAM_WAIT)
    }
    memo: dict[_State, frozenset[Outcome]] = {}

    def from_here(state: _State) -> frozenset[Outcome]:
        if state in memo:
            return memo[state]
        ready = [p for p in before if p not in state.done and before[p] <= state.done]
        if prompt := no_work.intersection(ready):
            ready = [min(prompt, key=_number)]
        found: set[Outcome] = set() if ready else {()}
        for point in ready:
            new, seen = _happen(program, state, point)
            found |= {(*seen, *rest) for rest in from_here(new)}
        memo[state] = frozenset(found)
        return memo[state]

    return from_here(_State(frozenset(), (), ()))


def _number(point: Point) -> int:
    return point.statement


def _happen(program: Program, state: _State, point: Point) -> tuple[_State, Outcome]:
    """A point happens; what it saw, if it is a read or a query. Host reads are in program order, so
    that outcomes are too.
    """
    one = program[point.statement]
    memory, staged = dict(state.memory), dict(state.staged)
    seen: Outcome = ()
    if point.part is Part.CALL:
        if one.kind is Kind.HOST_WRITE:
            memory[one.target] = one.value
        elif one.kind is Kind.HOST_READ:
            seen = (memory.get(one.source, 0),)
        elif one.kind is Kind.STAGED_UPLOAD:
            staged[point.statement] = memory.get(one.source, 0)
        elif one.kind is Kind.QUERY:
            recorded = _latest_record(program, point.statement)
            seen = (int(recorded is None or _operation(recorded) in state.done),)
    elif point.part is Part.OPERATION and one.target:
        memory[one.target] = _value(one, memory, staged.get(point.statement))
    done = state.done | {point}
    return _State(done, tuple(sorted(memory.items())), tuple(sorted(staged.items()))), seen


def _value(one: Statement, memory: dict[str, int], staged: int | None) -> int:
    """What an operation writes."""
    if one.kind is Kind.FILL:
        return one.value
    source = memory.get(one.source, 0) if staged is None else staged
    return source * 3 + one.value if one.kind is Kind.COMPUTE else source
