"""Ordering oracle: conflicting accesses with no path of program edges between them (happens-before,
vector clocks).

Per memory (storage) and row, in the manner of FastTrack (Flanagan and Freund 2009): the last write
and the reads since are kept; lanes are few, so whole clocks are compared. If there is no conflict
in one run that does not query completion, all schedules of the program are equivalent: they differ
in the order of operations that commute, and have the same outcome (Mazurkiewicz, Trace theory,
1987).
"""

from __future__ import annotations

import msgspec

from racegate.history.trace import Access, HostAccess, OpRecord, Queried, Trace


class Conflict(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Two accesses to common rows, at least one a write, that nothing orders. first was issued
    first.
    """

    buffer: str
    rows: int
    first: OpRecord | HostAccess
    first_writes: bool
    second: OpRecord | HostAccess
    second_writes: bool


class _Seen:
    """Rows of one access that no later write has covered."""

    __slots__ = ("event", "lane", "rows", "seq")

    def __init__(self, event: OpRecord | HostAccess, rows: int) -> None:
        self.event = event
        self.lane = event.lane
        self.seq = event.seq
        self.rows = rows


class _Shadow:
    """What is remembered of one storage."""

    __slots__ = ("reads", "writes")

    def __init__(self) -> None:
        self.writes: list[_Seen] = []
        self.reads: list[_Seen] = []


def find_conflicts(trace: Trace) -> list[Conflict]:
    """All conflicts of a run, one per pair of accesses, in the order in which the second access was
    issued.
    """
    conflicts: list[Conflict] = []
    for history in _by_storage(trace).values():
        shadow = _Shadow()
        for event, access in history:
            _check(shadow, event, access, conflicts)
    return conflicts


def has_unordered_query(trace: Trace) -> bool:
    """Whether the host branched on a completion that no edge had settled."""
    return any(isinstance(event, Queried) and not event.is_ordered for event in trace.events)


def _by_storage(trace: Trace) -> dict[int, list[tuple[OpRecord | HostAccess, Access]]]:
    """Accesses by storage, for the storages that more than one lane touches: one lane alone is
    ordered.
    """
    history: dict[int, list[tuple[OpRecord | HostAccess, Access]]] = {}
    lanes: dict[int, int] = {}
    for event in trace.events:
        if isinstance(event, HostAccess):
            accesses: tuple[Access, ...] = (event.access,)
            bit = 1
        elif isinstance(event, OpRecord):
            accesses = event.accesses
            bit = 1 << event.lane
        else:
            continue
        for access in accesses:
            storage = access.storage
            if storage in history:
                history[storage].append((event, access))
                lanes[storage] |= bit
            else:
                history[storage] = [(event, access)]
                lanes[storage] = bit
    return {storage: items for storage, items in history.items() if lanes[storage].bit_count() > 1}


def _check(
    shadow: _Shadow, event: OpRecord | HostAccess, access: Access, conflicts: list[Conflict]
) -> None:
    clock, lane, rows = event.clock, event.lane, access.rows
    for seen in shadow.writes:
        if seen.rows & rows and seen.lane != lane and clock[seen.lane] < seen.seq:
            conflicts.append(_conflict(seen, event, access, first_writes=True))
    if not access.is_write:
        # A later read of the same lane stands for an earlier one: what is ordered after it is after
        # both.
        for seen in shadow.reads:
            if seen.lane == lane:
                seen.rows &= ~rows
        shadow.reads = [seen for seen in shadow.reads if seen.rows]
        shadow.reads.append(_Seen(event, rows))
        return
    for seen in shadow.reads:
        if seen.rows & rows and seen.lane != lane and clock[seen.lane] < seen.seq:
            conflicts.append(_conflict(seen, event, access, first_writes=False))
    for seen in (*shadow.writes, *shadow.reads):
        seen.rows &= ~rows
    shadow.writes = [seen for seen in shadow.writes if seen.rows]
    shadow.reads = [seen for seen in shadow.reads if seen.rows]
    shadow.writes.append(_Seen(event, rows))


def _conflict(
    seen: _Seen, event: OpRecord | HostAccess, access: Access, *, first_writes: bool
) -> Conflict:
    return Conflict(
        buffer=access.buffer,
        rows=seen.rows & access.rows,
        first=seen.event,
        first_writes=first_writes,
        second=event,
        second_writes=access.is_write,
    )
