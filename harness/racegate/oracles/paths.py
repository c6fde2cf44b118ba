"""Paths of program edges between the events of a trace: host order, issue, stream order, records
and waits.
"""

from __future__ import annotations

from collections import deque

import msgspec

from racegate.history.trace import HostAccess, OpRecord, Recorded, Trace, Waited
from racegate.oracles.retiming import matched
from racegate.scenario.errors import BadInputError
from racegate.scenario.untrusted.near import near_it
from racegate.scenario.untrusted.text import quoted


class ExplainError(BadInputError):
    """A pair that cannot be explained: says why."""


class PathStep(msgspec.Struct, frozen=True, kw_only=True):
    """One edge of a path. by: what kind of edge; to: the operation or host action it leads to"""

    by: str
    to: str


class Ordered(msgspec.Struct, frozen=True, kw_only=True):
    """A pair is ordered, by this path. first: what comes first; second: what comes after it
    path: the edges from one to the other
    """

    first: str
    second: str
    path: tuple[PathStep, ...]


class EdgeGraph:
    """The events of a trace and the program edges between them."""

    def __init__(self, trace: Trace) -> None:
        self._trace = matched(trace)
        self._edges: dict[int, list[tuple[int, str]]] = {}
        self._named: dict[str, list[tuple[int, OpRecord | HostAccess]]] = {}
        self._build()

    def _build(self) -> None:
        last: dict[int, int] = {}
        hosts = self._trace.hosts()
        records: dict[tuple[str, int], int] = {}
        for place, event in enumerate(self._trace.events):
            if isinstance(event, OpRecord | HostAccess):
                if isinstance(event, OpRecord):
                    self._add(last.get(hosts[event.lane]), place, "issue by the host")
                self._follow(last, event.lane, place, self._order_of(event.lane))
                self._named.setdefault(event.name, []).append((place, event))
            elif isinstance(event, Recorded):
                self._add(last.get(event.lane), place, f"record of {event.event}")
                self._add(last.get(hosts[event.lane]), place, "issue by the host")
                records[event.event, event.version] = place
            elif isinstance(event, Waited) and not event.is_dropped:
                source = records.get((event.event, event.version))
                self._add(source, place, f"wait for edge {event.edge}")
                self._follow(last, event.lane, place, self._order_of(event.lane))

    def _order_of(self, lane: int) -> str:
        name = self._trace.lanes[lane]
        return "host order" if name.startswith("host") else f"stream order on {name}"

    def _follow(self, last: dict[int, int], lane: int, place: int, by: str) -> None:
        self._add(last.get(lane), place, by)
        last[lane] = place

    def _add(self, source: int | None, target: int, by: str) -> None:
        if source is not None:
            self._edges.setdefault(source, []).append((target, by))

    def places(self, event: OpRecord | HostAccess, buffer: str) -> list[int]:
        """Where an event of another run of the program is in this one: by its name and buffer."""
        return [
            place
            for place, mine in self._named.get(event.name, ())
            if any(access.buffer == buffer for access in mine.accesses)
        ]

    def find(self, name: str) -> int:
        """The event of that name: an operation, or the first access of a host action."""
        if name in self._named:
            return self._named[name][0][0]
        hint = near_it(name, set(self._named))
        raise ExplainError(f"no operation or host action {quoted(name)} in this run{hint}")

    def name(self, place: int) -> str:
        """What a reader calls the event at a place."""
        event = self._trace.events[place]
        match event:
            case OpRecord() | HostAccess():
                return event.name
            case Recorded():
                return f"record of {event.event} on {self._trace.lanes[event.lane]}"
            case Waited():
                return f"{self._trace.lanes[event.lane]} has waited for {event.edge}"
            case _:
                return type(event).__name__

    def is_ordered(self, first: int, second: int) -> bool:
        """Whether a path of edges leads from one event to another."""
        return self._came(first, second) is not None

    def path(self, first: int, second: int) -> Ordered | None:
        """The shortest path of edges from one event to another."""
        came = self._came(first, second)
        if came is None:
            return None
        walk = self._walk(came, first, second)
        return Ordered(first=self.name(first), second=self.name(second), path=walk)

    def _came(self, first: int, second: int) -> dict[int, tuple[int, str]] | None:
        """From where each event on the way was reached first, if the way leads to the second."""
        came: dict[int, tuple[int, str]] = {}
        queue = deque([first])
        while queue:
            place = queue.popleft()
            if place == second:
                return came
            for target, by in self._edges.get(place, ()):
                # Edges lead forward: what stands behind the second never leads back to it.
                if target <= second and target not in came and target != first:
                    came[target] = (place, by)
                    queue.append(target)
        return None

    def _walk(
        self, came: dict[int, tuple[int, str]], first: int, second: int
    ) -> tuple[PathStep, ...]:
        """The path found, a run of one stream's operations as one step."""
        backwards: list[tuple[str, int, int]] = []  # (by, place, edges)
        place = second
        while place != first:
            source, by = came[place]
            if backwards and backwards[-1][0] == by and by.startswith("stream order"):
                backwards[-1] = (by, backwards[-1][1], backwards[-1][2] + 1)
            else:
                backwards.append((by, place, 1))
            place = source
        return tuple(
            PathStep(by=by if count == 1 else f"{by}, {count} on", to=self.name(place))
            for by, place, count in reversed(backwards)
        )
