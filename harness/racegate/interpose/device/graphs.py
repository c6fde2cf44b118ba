"""Captured graphs: what was put on capturing streams, kept and run as one operation per launch.

The parts of a graph are judged among themselves when they are captured: a branch that reads what
another writes, without an edge inside the graph, is a race at every launch. A hold of a part keeps
it back inside each launch, as far as the graph's own edges allow and until the launch ends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from racegate.interpose.device.copies import RemadeWork
from racegate.interpose.device.guards import Guards
from racegate.interpose.device.queue import Work, WorkQueue
from racegate.interpose.device.spans import Spans
from racegate.order.clocks import Clock, join
from racegate.order.ranges import Ranges, merged
from racegate.order.recorder import Recorder, Stack

_ONE = 0  # whichever threads capture a graph, they do it one after the other


@dataclass(frozen=True, slots=True)
class _Part:
    """One operation of a graph. lane, number, clock: of the graph's own recorder."""

    label: str
    lane: int
    number: int
    clock: Clock
    run: Work


@dataclass(slots=True)
class _Graph:
    inside: Recorder
    parts: list[_Part] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    reads: list[tuple[int, int]] = field(default_factory=list)
    writes: list[tuple[int, int]] = field(default_factory=list)


class CapturedSession(Protocol):
    """The session, as far as it is needed here."""

    recorder: Recorder
    spans: Spans
    guards: Guards
    queue: WorkQueue
    parts: dict[str, list[str]]
    lock: threading.RLock
    drain: Callable[[], None]

    def own(self) -> AbstractContextManager[None]: ...

    def stack(self) -> Stack: ...

    def stream_lane(self, handle: int) -> int: ...

    def thread_lane(self, ident: int | None = None) -> int: ...

    def issue(
        self, kind: str, stream: int, reads: Ranges, writes: Ranges, run: Work | None
    ) -> str: ...


class Graphs:
    """Graphs by the number that the native runtime gave them."""

    def __init__(self, session: CapturedSession) -> None:
        self._session = session
        self._graphs: dict[int, _Graph] = {}
        self.capturing = 0

    def begin(self, number: int) -> None:
        self._graphs[number] = _Graph(Recorder(on_conflict=self._session.recorder.on_conflict))
        self.capturing += 1

    def end(self, number: int) -> None:
        self.capturing -= number in self._graphs

    def record(self, number: int, event: int, stream: int) -> None:
        """An event is recorded on a capturing stream: an edge inside the graph."""
        inside = self._inside(number)
        session = self._session
        lane = session.stream_lane(stream)
        self._match_lanes(inside)
        inside.record(event, _ONE, lane, session.stack())

    def wait(self, number: int, event: int, stream: int) -> None:
        inside = self._inside(number)
        lane = self._session.stream_lane(stream)
        self._match_lanes(inside)
        inside.make_wait(_ONE, lane, event, self._session.stack())

    def add(
        self,
        number: int,
        kind: str,
        stream: int,
        reads: Ranges,
        writes: Ranges,
        run: Work,
    ) -> bool:
        """Keeps an operation if its stream is being captured (number is not 0)."""
        graph = self._graphs.get(number)
        if graph is None:
            return False
        session = self._session
        with session.lock:
            session.drain()
            graph.reads.extend(reads)
            graph.writes.extend(writes)
            lane, stack = session.stream_lane(stream), session.stack()
            self._match_lanes(graph.inside)
            for low, _ in (*reads, *writes):
                span = session.spans.find(low)
                if span is not None and not graph.inside.memory.is_known(low):
                    graph.inside.memory.add(span.base, span.end - span.base)
            label = session.recorder.label(kind, stack)
            graph.inside.issue(_ONE, lane, label, stack, reads, writes)
            lanes = graph.inside.lanes
            graph.parts.append(_Part(label, lane, lanes.number(lane), lanes.clock(lane), run))
            graph.labels.append(label)
        return True

    def size(self, number: int) -> int:
        """How many operations were captured."""
        self._session.drain()
        return len(self._graphs[number].parts)

    def launch(self, number: int, stream: int) -> None:
        """Replays a graph: one operation on the stream, which touches what its parts touch."""
        graph = self._graphs[number]
        reads, writes = merged(graph.reads), merged(graph.writes)

        def run() -> None:
            for low, high in (*reads, *writes):
                self._session.guards.lift(low, high)
            with self._session.own():
                for part in graph.parts:
                    part.run()

        is_remade = any(isinstance(part.run, RemadeWork) for part in graph.parts)
        if is_remade or any(map(self._session.queue.is_held, graph.labels)):
            label = self._spread(graph, stream, *((reads, writes) if is_remade else ((), ())))
            self._session.parts[label] = graph.labels
        else:
            label = self._session.issue("graph", stream, reads, writes, run)
            self._session.parts[label] = graph.labels

    def _spread(self, graph: _Graph, stream: int, reads: Ranges, writes: Ranges) -> str:
        """A replay under a hold that names a part, or whose parts other ranks have to come to: its
        parts on lanes of their own, each behind what the graph puts before it, all of them behind
        what the stream held before. Returns its label.
        """
        session = self._session
        with session.lock:
            label = session.issue("graph", stream, reads, writes, None)
            lanes = session.recorder.lanes
            outside = lanes.of(session.thread_lane(), session.stream_lane(stream))
            before = lanes.clock(outside)
            inner = {
                lane: lanes.add("a graph", is_host=False)
                for lane in sorted({part.lane for part in graph.parts})
            }
            for part in graph.parts:
                clock = list(before)
                for lane, own in inner.items():
                    known = part.clock[lane] if lane < len(part.clock) else 0
                    join(clock, [0] * own + [known])
                session.queue.reach(part.label)
                run = part.run.remake() if isinstance(part.run, RemadeWork) else part.run
                session.queue.submit(part.label, inner[part.lane], part.number, clock, run)
                lanes.learn(outside, clock)
        return label

    def _inside(self, number: int) -> Recorder:
        return self._graphs[number].inside

    def _match_lanes(self, inside: Recorder) -> None:
        """The graph's recorder numbers its lanes as the session does."""
        lanes = self._session.recorder.lanes
        for lane in range(len(inside.lanes.names), len(lanes.names)):
            inside.lanes.add(lanes.names.get(lane, ""), is_host=lanes.is_host(lane))
