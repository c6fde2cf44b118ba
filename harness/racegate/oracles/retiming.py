"""Retiming: a history with other clocks than it was recorded with. With those it has if some waits
wait and others do not, and with those it has if what a rank did before a collective is before what
another rank does behind it, whichever of them was told first.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence

import msgspec

from racegate.history.trace import (
    Clock,
    HostAccess,
    OpRecord,
    Recorded,
    Trace,
    TraceEvent,
    Waited,
)
from racegate.order.clocks import Clocks


def matched(trace: Trace) -> Trace:
    """The history of several ranks in an order in which what is waited for has come. A wait for
    what nobody recorded ends its rank.
    """
    hosts = trace.hosts()
    if len(set(hosts)) == 1:
        return trace
    left = _by_host(trace, hosts)
    recorded: set[tuple[str, int]] = set()
    events: list[TraceEvent] = []
    moved = True
    while moved:
        moved = False
        for queue in left.values():
            moved |= _take(queue, recorded, events)
        moved = moved or _let_go(left.values(), recorded)
    return msgspec.structs.replace(trace, events=tuple(events))


def _by_host(trace: Trace, hosts: Sequence[int]) -> dict[int, deque[TraceEvent]]:
    """What each host did, in its order."""
    left: dict[int, deque[TraceEvent]] = defaultdict(deque)
    host = 0
    for event in trace.events:
        if isinstance(event, OpRecord | HostAccess | Recorded | Waited):
            host = hosts[event.lane]
        left[host].append(event)
    return left


def _take(
    queue: deque[TraceEvent], recorded: set[tuple[str, int]], events: list[TraceEvent]
) -> bool:
    """Adds to events what a host did up to a wait for what has not come; whether that was anything.
    recorded: what has come, by event and number
    """
    before = len(events)
    while queue:
        event = queue[0]
        if isinstance(event, Recorded):
            recorded.add((event.event, event.version))
        if isinstance(event, Waited) and (event.event, event.version) not in recorded:
            break
        events.append(queue.popleft())
    return len(events) > before


def _let_go(queues: Iterable[deque[TraceEvent]], recorded: set[tuple[str, int]]) -> bool:
    """Where nothing else goes on, a dropped wait does without what it was for."""
    for queue in queues:
        if queue and isinstance(queue[0], Waited) and queue[0].is_dropped:
            recorded.add((queue[0].event, queue[0].version))
            return True
    return False


def retimed(trace: Trace, is_kept: Callable[[Waited], bool]) -> Trace:
    """The same history with the clocks that it has if these waits wait, and no other does."""
    clocks = Clocks(len(trace.lanes))
    hosts = trace.hosts()
    records: dict[tuple[str, int], Clock] = {}
    events: list[TraceEvent] = []
    for event in trace.events:
        match event:
            case OpRecord():
                seq, clock = clocks.issue(hosts[event.lane], event.lane)
                events.append(msgspec.structs.replace(event, seq=seq, clock=clock))
                continue
            case HostAccess():
                seq, clock = clocks.number(event.lane), clocks.known(event.lane)
                events.append(msgspec.structs.replace(event, seq=seq, clock=clock))
                continue
            case Recorded():
                records[event.event, event.version] = clocks.record(hosts[event.lane], event.lane)
            case Waited() if is_kept(event):
                clocks.learn(event.lane, records.get((event.event, event.version), ()))
        events.append(event)
    return msgspec.structs.replace(trace, events=tuple(events))
