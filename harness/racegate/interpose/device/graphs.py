"""Captured graphs: what was put on capturing streams, kept and run as one operation per launch.

The parts of a graph are judged among themselves when they are captured: a branch that reads what
another writes, without an edge inside the graph, is a race at every launch.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from racegate.interpose.device.queue import Work
from racegate.interpose.device.session import Session
from racegate.interpose.order.ranges import Ranges, merged
from racegate.interpose.order.recorder import Recorder


@dataclass(slots=True)
class _Graph:
    inside: Recorder
    runs: list[Work] = field(default_factory=list)
    reads: list[tuple[int, int]] = field(default_factory=list)
    writes: list[tuple[int, int]] = field(default_factory=list)


class Graphs:
    """Graphs by the number that the native runtime gave them."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._graphs: dict[int, _Graph] = {}
        self.capturing = 0

    def begin(self, number: int) -> None:
        recorder = Recorder()
        recorder.on_conflict = self._session.recorder.on_conflict
        self._graphs[number] = _Graph(recorder)
        self.capturing += 1

    def end(self, number: int) -> None:
        self.capturing -= number in self._graphs

    def record(self, number: int, event: int, stream: int, thread: int) -> None:
        """An event is recorded on a capturing stream: an edge inside the graph."""
        inside = self._inside(number)
        session = self._session
        lane = session.stream_lane(stream)
        self._match_lanes(inside)
        inside.record(event, session.thread_lane(thread), lane, session.stack())

    def wait(self, number: int, event: int, stream: int) -> None:
        inside = self._inside(number)
        lane = self._session.stream_lane(stream)
        self._match_lanes(inside)
        inside.wait(lane, event, self._session.stack())

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
            graph.runs.append(run)
            graph.reads.extend(reads)
            graph.writes.extend(writes)
            lane, stack = session.stream_lane(stream), session.stack()
            self._match_lanes(graph.inside)
            for low, _ in (*reads, *writes):
                span = session.spans.find(low)
                if span is not None and not graph.inside.shadow.is_known(low):
                    graph.inside.shadow.add(span.base, span.end - span.base)
            label = session.recorder.label(kind, stack)
            graph.inside.issue(session.thread_lane(), lane, label, stack, reads, writes)
        return True

    def launch(self, number: int, stream: int) -> None:
        """Replays a graph: one operation on the stream, which touches what its parts touch."""
        graph = self._graphs[number]

        def run() -> None:
            with self._session.own():
                for part in graph.runs:
                    part()

        writes = merged(graph.writes)
        self._session.issue("graph", stream, merged(graph.reads), writes, run)

    def _inside(self, number: int) -> Recorder:
        return self._graphs[number].inside

    def _match_lanes(self, inside: Recorder) -> None:
        """The graph's recorder numbers its lanes as the session does."""
        lanes = self._session.recorder.lanes
        for lane in range(len(inside.lanes.names), len(lanes.names)):
            inside.lanes.add(lanes.names[lane], is_host=lanes.is_host(lane))
