"""Timeline: one run as lanes, operations in flight and edges, with the two operations of a finding.

Time is the order in which the host issued things: no clock was read. An operation is in flight
until it lands; the host knows of it later, by an edge of the program.
"""

from __future__ import annotations

from bisect import bisect_left
from enum import StrEnum
from operator import itemgetter

import msgspec

from racegate.history.run import Run
from racegate.history.trace import (
    Clock,
    HostAccess,
    Misowned,
    OpRecord,
    Recorded,
    Trace,
    Waited,
    rows_of,
)
from racegate.oracles.ordering import find_conflicts
from racegate.oracles.paths import ExplainError
from racegate.report.cause.pair import Pair, Relation, TraceStep, pair_of_conflict
from racegate.report.cause.row_assignment import (
    Move,
    RowAssignment,
    assignment_of,
    moves_between,
    noun_of,
)
from racegate.report.timeline.landings import landings_of


class Role(StrEnum):
    """What a bar has to do with the pair: one of it, who met another's value, another access of its
    rows, or nothing.
    """

    FIRST = "first"
    SECOND = "second"
    WRONG = "wrong"
    BESIDE = "beside"
    OTHER = "other"


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """An operation of a stream, or what the host did at one point.

    at: its place in the order of issue; landed: where it was complete
    until: where the host knows that, `at` for what the host itself did, None if it never knows
    held: the point that a hold keeps it until, or nothing
    touches: what it does with the rows of the pair, in words; empty if it does nothing with them
    """

    name: str
    step: int
    lane: int
    at: int
    until: int | None
    landed: int
    role: Role
    touches: str = ""
    held: str = ""


class Arrow(msgspec.Struct, frozen=True, kw_only=True):
    """An edge of the program: what `lane` waits for.

    edge: its name; start: where the event was recorded, on start_lane; at: where lane waits
    is_dropped: the wait was taken out by a seeded fault, and orders nothing
    orders_first: it covers the first of the pair, so behind it nothing races any more
    """

    edge: str
    start: int
    start_lane: int
    at: int
    lane: int
    step: int
    is_dropped: bool
    orders_first: bool


class StepRows(msgspec.Struct, frozen=True, kw_only=True):
    """Who sits where from the beginning of a step. rows: requests; moves: since the step before"""

    step: int
    at: int
    rows: tuple[str, ...]
    moves: tuple[Move, ...]


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """One run around one pair. lanes: names by number; rows: those that both of the pair touch

    noun: what a row of the buffer is; step_rows: by step, in their order
    """

    lanes: tuple[str, ...]
    bars: tuple[Bar, ...]
    arrows: tuple[Arrow, ...]
    buffer: str
    rows: tuple[int, ...]
    noun: str
    relation: Relation
    step_rows: tuple[StepRows, ...]

    @property
    def first(self) -> Bar:
        """The one of the pair that was issued first."""
        return next(bar for bar in self.bars if bar.role is Role.FIRST)

    @property
    def second(self) -> Bar:
        """The one that may overtake it."""
        return next(bar for bar in self.bars if bar.role is Role.SECOND)

    @property
    def late(self) -> Arrow | None:
        """The first wait of the second's lane that covers the first, though it stands too late."""
        second = self.second
        fitting = (a for a in self.arrows if a.orders_first and a.lane == second.lane)
        return next((a for a in fitting if a.at > second.at and not a.is_dropped), None)


def racing_pair(trace: Trace, first: str, second: str) -> Pair:
    """The conflict of two operations by their names. Raises ExplainError if they have none."""
    for conflict in find_conflicts(trace):
        if {conflict.first.name, conflict.second.name} == {first, second}:
            return pair_of_conflict(conflict)
    raise ExplainError(f"{first} and {second} do not race in this run: there is nothing to draw")


def timeline_of(run: Run, pair: Pair) -> Timeline:
    """The run around two operations of it."""
    assignment = assignment_of(run.observations)
    return Timeline(
        lanes=run.trace.lanes,
        bars=tuple(_bars(run, pair, assignment)),
        arrows=_arrows(run.trace, pair.first),
        buffer=pair.buffer,
        rows=tuple(rows_of(pair.rows)),
        noun=noun_of(pair.buffer),
        relation=pair.relation,
        step_rows=tuple(_step_rows(run.trace, assignment)),
    )


def _bars(run: Run, pair: Pair, assignment: RowAssignment) -> list[Bar]:
    trace, storage = run.trace, _storage_of(pair)
    known = _what_the_host_knows(trace)
    landings = landings_of(run, assignment, known)
    bars: list[Bar] = []
    for at, event in enumerate(trace.events):
        if isinstance(event, Misowned):
            _mark_wrong(bars, event, pair)
        if not isinstance(event, OpRecord | HostAccess):
            continue
        landing = landings.get(at)
        touches = _touches(event, pair, storage)
        bars.append(
            Bar(
                name=event.name,
                step=event.step,
                lane=event.lane,
                at=at,
                until=known.get(at, at),
                landed=at if landing is None else landing.at,
                role=_role(event, pair, touches),
                touches=touches,
                held="" if landing is None else landing.until,
            )
        )
    return bars


def _role(event: TraceStep, pair: Pair, touches: str) -> Role:
    if event is pair.first:
        return Role.FIRST
    if event is pair.second:
        return Role.SECOND
    return Role.BESIDE if touches else Role.OTHER


def _mark_wrong(bars: list[Bar], met: Misowned, pair: Pair) -> None:
    """What was read last met another's value: its bar says so, unless it is one of the pair."""
    if not bars or met.buffer != pair.buffer or bars[-1].name != met.name:
        return
    whose = "nobody's value" if met.actual is None else f"the value of {met.actual[0]}"
    touches = f"row {met.row} is {met.expected[0]}'s and holds {whose}"
    is_of_pair = bars[-1].role in (Role.FIRST, Role.SECOND)
    role = bars[-1].role if is_of_pair else Role.WRONG
    bars[-1] = msgspec.structs.replace(bars[-1], role=role, touches=touches)


def _step_rows(trace: Trace, assignment: RowAssignment) -> list[StepRows]:
    """By step, from where the host begins with it."""
    begun: dict[int, int] = {}
    for at, event in enumerate(trace.events):
        if isinstance(event, HostAccess) and event.step not in begun:
            begun[event.step] = at
    step_rows: list[StepRows] = []
    before: tuple[str, ...] = ()
    for step, at in sorted(begun.items()):
        rows = assignment.rows.get(step, before)
        if step >= 0:
            moves = moves_between(before, rows)
            step_rows.append(StepRows(step=step, at=at, rows=rows, moves=moves))
            before = rows
    return step_rows


def _what_the_host_knows(trace: Trace) -> dict[int, int | None]:
    """Place of an operation -> where the host knows that it is complete."""
    clocks = _recorded(trace)
    hosts = trace.hosts()
    # By host: where it comes to know something, and all that it knows there.
    places: dict[int, list[int]] = {host: [] for host in hosts}
    knowing: dict[int, list[Clock]] = {host: [] for host in hosts}
    for at, event in enumerate(trace.events):
        if isinstance(event, HostAccess):
            places[event.lane].append(at)
            knowing[event.lane].append(event.clock)
        elif isinstance(event, Waited) and event.lane in places and not event.is_dropped:
            found = clocks.get((event.event, event.version))
            if found is not None:
                places[event.lane].append(at)
                mine = knowing[event.lane]
                mine.append(_joined(found[1].clock, mine[-1:]))
    known: dict[int, int | None] = {}
    for at, event in enumerate(trace.events):
        if isinstance(event, OpRecord):
            host = hosts[event.lane]
            index = bisect_left(knowing[host], event.seq, key=itemgetter(event.lane))
            known[at] = places[host][index] if index < len(places[host]) else None
    return known


def _joined(clock: Clock, others: list[Clock]) -> Clock:
    return tuple(map(max, clock, *others)) if others else clock


def _recorded(trace: Trace) -> dict[tuple[str, int], tuple[int, Recorded]]:
    """(event, version) -> where it was recorded."""
    return {
        (event.event, event.version): (at, event)
        for at, event in enumerate(trace.events)
        if isinstance(event, Recorded)
    }


def _arrows(trace: Trace, first: TraceStep) -> tuple[Arrow, ...]:
    recorded = _recorded(trace)
    arrows = []
    for at, event in enumerate(trace.events):
        if not isinstance(event, Waited) or (event.event, event.version) not in recorded:
            continue
        start, record = recorded[event.event, event.version]
        arrows.append(
            Arrow(
                edge=event.edge,
                start=start,
                start_lane=record.lane,
                at=at,
                lane=event.lane,
                step=event.step,
                is_dropped=event.is_dropped,
                orders_first=record.clock[first.lane] >= first.seq,
            )
        )
    return tuple(arrows)


def _touches(event: TraceStep, pair: Pair, storage: int) -> str:
    """What an event does with the rows of the pair."""
    common = [a for a in event.accesses if a.storage == storage and a.rows & pair.rows]
    if not common:
        return ""
    kinds = {access.is_write for access in common}
    verb = "reads and writes" if len(kinds) == 2 else "writes" if True in kinds else "reads"
    rows = 0
    for access in common:
        rows |= access.rows & pair.rows
    return f"{verb} {pair.buffer} {_in_words(rows_of(rows))}"


def _storage_of(pair: Pair) -> int:
    return next(
        access.storage
        for access in pair.first.accesses
        if access.buffer == pair.buffer and access.rows & pair.rows
    )


def _in_words(rows: list[int]) -> str:
    if len(rows) == 1:
        return f"row {rows[0]}"
    if len(rows) > 2 and rows[-1] - rows[0] == len(rows) - 1:
        return f"rows {rows[0]} to {rows[-1]}"
    return f"rows {', '.join(map(str, rows))}"
