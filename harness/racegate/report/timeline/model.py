"""Timeline: one run as lanes, operations in flight and edges, with the pair that nothing orders.

Time is the order in which the host issued things: no clock was read. An operation is in flight
until the host knows, by an edge of the program, that it is complete.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from racegate.history.trace import (
    HOST,
    Access,
    HostAccess,
    OpRecord,
    Recorded,
    Trace,
    Waited,
    rows_of,
)
from racegate.oracles.ordering import Conflict, find_conflicts
from racegate.oracles.paths import ExplainError

TraceStep = OpRecord | HostAccess


class Role(StrEnum):
    """What a bar has to do with the race: one of the pair, another access of its rows, or none."""

    FIRST = "first"
    SECOND = "second"
    BESIDE = "beside"
    OTHER = "other"


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """An operation of a stream, or what the host did at one point.

    at: its place in the order of issue; until: where the host knows that it is complete, `at` for
        what the host itself did, None if it never knows
    touches: what it does with the rows of the race, in words; empty if it does nothing with them
    """

    name: str
    step: int
    lane: int
    at: int
    until: int | None
    role: Role
    touches: str = ""


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


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """One run around one pair. lanes: names by number; rows: those that both of the pair touch"""

    lanes: tuple[str, ...]
    bars: tuple[Bar, ...]
    arrows: tuple[Arrow, ...]
    buffer: str
    rows: tuple[int, ...]

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


def timeline_of(trace: Trace, first: str, second: str) -> Timeline:
    """The run around the conflict of two operations. Raises ExplainError if they have none."""
    for conflict in find_conflicts(trace):
        if {conflict.first.name, conflict.second.name} == {first, second}:
            return _around(trace, conflict)
    raise ExplainError(f"{first} and {second} do not race in this run: there is nothing to draw")


def _around(trace: Trace, conflict: Conflict) -> Timeline:
    knowing = _what_the_host_knows(trace)
    bars = []
    for at, event in enumerate(trace.events):
        if not isinstance(event, OpRecord | HostAccess):
            continue
        touches = _touches(event, conflict)
        role = Role.BESIDE if touches else Role.OTHER
        if event is conflict.first:
            role = Role.FIRST
        elif event is conflict.second:
            role = Role.SECOND
        until = at if isinstance(event, HostAccess) else _known_at(event, knowing, at)
        bars.append(
            Bar(
                name=event.name,
                step=event.step,
                lane=event.lane,
                at=at,
                until=until,
                role=role,
                touches=touches,
            )
        )
    return Timeline(
        lanes=trace.lanes,
        bars=tuple(bars),
        arrows=_arrows(trace, conflict.first),
        buffer=conflict.buffer,
        rows=tuple(rows_of(conflict.rows)),
    )


def _what_the_host_knows(trace: Trace) -> list[tuple[int, tuple[int, ...]]]:
    """(place, clock) wherever the host learns something."""
    clocks = _recorded(trace)
    knowing = []
    for at, event in enumerate(trace.events):
        if isinstance(event, HostAccess):
            knowing.append((at, event.clock))
        elif isinstance(event, Waited) and event.lane == HOST and not event.is_dropped:
            found = clocks.get((event.event, event.version))
            if found is not None:
                knowing.append((at, found[1].clock))
    return knowing


def _known_at(event: OpRecord, knowing: list[tuple[int, tuple[int, ...]]], at: int) -> int | None:
    lane, seq = event.lane, event.seq
    return next((k for k, clock in knowing if k > at and clock[lane] >= seq), None)


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


def _touches(event: TraceStep, conflict: Conflict) -> str:
    """What an event does with the rows of the conflict."""
    storage = _storage_of(conflict)
    common = [a for a in event.accesses if a.storage == storage and a.rows & conflict.rows]
    if not common:
        return ""
    kinds = {access.is_write for access in common}
    verb = "reads and writes" if len(kinds) == 2 else "writes" if True in kinds else "reads"
    rows = 0
    for access in common:
        rows |= access.rows & conflict.rows
    return f"{verb} {conflict.buffer} {_in_words(rows_of(rows))}"


def _storage_of(conflict: Conflict) -> int:
    def fits(access: Access) -> bool:
        return access.buffer == conflict.buffer and bool(access.rows & conflict.rows)

    return next(access.storage for access in conflict.first.accesses if fits(access))


def _in_words(rows: list[int]) -> str:
    if len(rows) == 1:
        return f"row {rows[0]}"
    if len(rows) > 2 and rows[-1] - rows[0] == len(rows) - 1:
        return f"rows {rows[0]} to {rows[-1]}"
    return f"rows {', '.join(map(str, rows))}"
