"""Captured graphs: what was put on a capturing stream, kept and run as one operation per launch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from racegate.interpose.order.ranges import Ranges, merged
from racegate.interpose.program.session import Session


@dataclass(slots=True)
class _Graph:
    runs: list[Callable[[], None]] = field(default_factory=list)
    reads: list[tuple[int, int]] = field(default_factory=list)
    writes: list[tuple[int, int]] = field(default_factory=list)


class Graphs:
    """Graphs by the number that the native runtime gave them."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._graphs: dict[int, _Graph] = {}
        self.capturing = 0

    def begin(self, number: int) -> None:
        self._graphs[number] = _Graph()
        self.capturing += 1

    def end(self, number: int) -> None:
        self.capturing -= number in self._graphs

    def add(
        self, number: int, kind: str, reads: Ranges, writes: Ranges, run: Callable[[], None]
    ) -> bool:
        """Keeps an operation if its stream is being captured (number is not 0)."""
        graph = self._graphs.get(number)
        if graph is None:
            return False
        graph.runs.append(run)
        graph.reads.extend(reads)
        graph.writes.extend(writes)
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
