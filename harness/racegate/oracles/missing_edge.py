"""Which edge a conflict lacks: of several for its buffer, the one that was tried and orders the
pair.

Patterns say what an edge is for, but those of a foreign engine may be wide: the two edges of a ring
buffer are for the same buffer. So the same history is timed again with the waits of one edge put
back, or taken away, and what conflicts then is compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from functools import cache

from racegate.history.edge import Edge
from racegate.history.trace import (
    Conflict,
    HostAccess,
    OpRecord,
    Recorded,
    Trace,
    TraceEvent,
    Waited,
    unranked,
)
from racegate.oracles.ordering import find_conflicts
from racegate.oracles.retiming import matched, retimed

_Pairs = Counter[tuple[str, str, str]]


def label(name: str) -> str:
    """An operation's name without its step and its rank."""
    return unranked(name).partition("@")[0]


def edge_finder(trace: Trace, edges: Sequence[Edge]) -> Callable[[Conflict], Sequence[Edge]]:
    """What names the edge that a conflict of this run lacks: one, if it is known; several, if none
    of those that are for the pair by their patterns is known to be it. An edge that waits in this
    run, and never for such a pair, is for another one, whatever its patterns let through.
    """
    trace = matched(trace)
    waiting = {event.edge for event in trace.events if isinstance(event, Waited)}

    @cache
    def found_with(name: str) -> _Pairs:
        """Conflicts, by operation, if the dropped waits of one edge waited."""
        return _pairs(retimed(trace, lambda wait: not wait.is_dropped or wait.edge == name))

    @cache
    def found_without(name: str) -> _Pairs:
        """Conflicts, by the kind of operation, if the waits of one edge did not wait."""
        kept = retimed(trace, lambda wait: not wait.is_dropped and wait.edge != name)
        return _by_kind(_pairs(kept))

    @cache
    def found_now() -> _Pairs:
        return _by_kind(_pairs(trace))

    def find(conflict: Conflict) -> Sequence[Edge]:
        meant = [edge for edge in edges if _is_for(edge, conflict)]
        if len(meant) < 2 and all(map(_has_sides, meant)):
            return meant
        pair = _pair(conflict)
        kind = _kind(pair)
        mending = [edge for edge in meant if not found_with(edge.name)[pair]]
        keeping = [edge for edge in meant if found_without(edge.name)[kind] > found_now()[kind]]
        late = late_wait(trace, conflict.first, conflict.second)
        behind = [edge for edge in meant if late is not None and edge.name == late.edge]
        return mending or behind or keeping or [e for e in meant if e.name not in waiting]

    return find


def late_wait(
    trace: Trace, first: OpRecord | HostAccess, second: OpRecord | HostAccess
) -> Waited | None:
    """The first wait of the second's lane behind it that would order the two if it stood before it:
    what it waits for covers the first, and had been recorded by then. The two may be those of
    another run of the same program.
    """
    at = next((n for n, event in enumerate(trace.events) if _is_same(event, second)), None)
    if at is None:
        return None
    covering = {
        (event.event, event.version)
        for event in trace.events[:at]
        if isinstance(event, Recorded) and event.clock[first.lane] >= first.seq
    }
    behind = (e for e in trace.events[at:] if isinstance(e, Waited) and not e.is_dropped)
    waits = (e for e in behind if e.lane == second.lane)
    return next((e for e in waits if (e.event, e.version) in covering), None)


def _is_for(edge: Edge, conflict: Conflict) -> bool:
    """Whether an edge says that it is for such a pair."""
    first, second = label(conflict.first.name), label(conflict.second.name)
    sides = ((conflict.buffer, edge.buffers), (first, edge.first), (second, edge.second))
    return all(any(fnmatchcase(name, p) for p in patterns) for name, patterns in sides)


def _is_same(event: TraceEvent, other: OpRecord | HostAccess) -> bool:
    """Whether it is this access, in any run."""
    if not isinstance(event, OpRecord | HostAccess):
        return False
    return (event.name, event.seq) == (other.name, other.seq)


def _has_sides(edge: Edge) -> bool:
    """Whether an edge says of which operations it is, and not of its buffer alone."""
    return edge.first != ("*",) or edge.second != ("*",)


def _pairs(trace: Trace) -> _Pairs:
    return Counter(map(_pair, find_conflicts(trace)))


def _pair(found: Conflict) -> tuple[str, str, str]:
    return found.buffer, found.first.name, found.second.name


def _kind(pair: tuple[str, str, str]) -> tuple[str, str, str]:
    return pair[0], label(pair[1]), label(pair[2])


def _by_kind(pairs: _Pairs) -> _Pairs:
    counted: _Pairs = Counter()
    for pair, number in pairs.items():
        counted[_kind(pair)] += number
    return counted
