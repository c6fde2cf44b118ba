"""Ordering oracle: conflicting accesses with no path of program edges between them (happens-before,
vector clocks). What a conflict is, `order/rows.py` says; here are the accesses of a trace.

If there is no conflict in one run that does not query completion, all schedules of the program are
equivalent: they differ in the order of operations that commute, and have the same outcome
(Mazurkiewicz, Trace theory, 1987).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from racegate.history.trace import (
    Access,
    Conflict,
    HostAccess,
    OpRecord,
    Queried,
    Trace,
    TraceEvent,
)
from racegate.oracles.retiming import matched, retimed
from racegate.order.clocks import knows
from racegate.order.rows import Shadow


def find_conflicts(trace: Trace) -> list[Conflict]:
    """All conflicts of a run, one per pair of accesses, storage by storage in the order in which
    the second access was issued.
    """
    ordered = matched(trace)
    if ordered is trace:
        return _conflicts(trace)
    timed = retimed(ordered, lambda wait: not wait.is_dropped)
    recorded = {id(new): event for event, new in zip(ordered.events, timed.events, strict=True)}
    return [_between(found, recorded) for found in _conflicts(timed)]


def _between(found: Conflict, recorded: Mapping[int, TraceEvent]) -> Conflict:
    """The conflict with the events as they were recorded. recorded: by identity of those timed"""
    first, second = recorded[id(found.first)], recorded[id(found.second)]
    return msgspec.structs.replace(found, first=first, second=second)


def _conflicts(trace: Trace) -> list[Conflict]:
    conflicts: list[Conflict] = []
    for history in _by_storage(trace).values():
        if _is_ordered_whole(history):
            continue
        shadow: Shadow[OpRecord | HostAccess] = Shadow()
        for event, access in history:
            touch = shadow.write if access.is_write else shadow.read
            found = touch(event, event.lane, event.seq, event.clock, access.rows)
            for first, rows in found:
                conflicts.append(
                    Conflict(
                        buffer=access.buffer,
                        rows=rows,
                        first=first.event,
                        first_writes=first.is_write,
                        second=event,
                        second_writes=access.is_write,
                    )
                )
    return conflicts


def _is_ordered_whole(history: Sequence[tuple[OpRecord | HostAccess, Access]]) -> bool:
    """Whether nothing would be in conflict if every access touched all rows of its storage, which
    is soon known: the last write, and by lane the last read since, are all there is to look at.
    """
    writer, written = -1, 0
    reads: dict[int, int] = {}
    for event, access in history:
        lane, clock = event.lane, event.clock
        if writer not in (-1, lane) and not knows(clock, writer, written):
            return False
        if not access.is_write:
            reads[lane] = event.seq
            continue
        for reader, number in reads.items():
            if reader != lane and not knows(clock, reader, number):
                return False
        reads.clear()
        writer, written = lane, event.seq
    return True


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
            bit = 1 << event.lane
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
