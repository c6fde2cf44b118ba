"""Programs of several threads and streams, told statement by statement to recorders and to a graph.

The graph knows points and edges alone: who comes before whom is whether a path leads there. Nothing
of `racegate.order` is used in it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from racegate.order.recorder import Recorder

THREADS, STREAMS, EVENTS, BLOCKS, SIZE = 2, 3, 2, 2, 4  # the blocks lie side by side
LEGACY, BLOCKING = THREADS, THREADS + 1  # lanes of the legacy default stream and a blocking one
LANES = THREADS + STREAMS
Key = tuple[int, bool, int, bool]  # earlier and later access, and whether they write
Ranges = tuple[tuple[int, int], ...]
Statement = tuple[object, ...]


def bytes_of(found: Ranges) -> set[int]:
    """The bytes in ranges."""
    return {byte for low, high in found for byte in range(low, high)}


class Graph:
    """Points and edges. last: of each lane its last point, which what it does next comes after."""

    def __init__(self) -> None:
        self.sources: list[list[int]] = []
        self.last: list[list[int]] = [[] for _ in range(LANES)]

    def point(self, *sources: list[int]) -> int:
        """A thing that happens after all that is in the lists."""
        self.sources.append([point for points in sources for point in points])
        return len(self.sources) - 1

    def step(self, lane: int, *sources: list[int]) -> int:
        """A thing that a lane does after all that it did, and after others."""
        point = self.point(self.last[lane], *sources)
        self.last[lane] = [point]
        return point

    def before(self, point: int) -> set[int]:
        """All points from which a path leads to this one."""
        found: set[int] = set()
        ways = list(self.sources[point])
        while ways:
            source = ways.pop()
            if source not in found:
                found.add(source)
                ways += self.sources[source]
        return found


@dataclass(slots=True)
class Model:
    """What every byte by itself remembers: all accesses to it since it was handed out.

    lanes, points: of each access; found: pairs as recorders have them, bytes by pair: of all
    unordered ones those whose first is the last write, or its lane's last read since
    has_race: whether any pair of accesses is unordered, remembered or not
    """

    graph: Graph = field(default_factory=Graph)
    lanes: list[int] = field(default_factory=list)
    points: list[int] = field(default_factory=list)
    history: dict[int, list[tuple[int, bool]]] = field(default_factory=dict)
    found: Counter[Key] = field(default_factory=Counter)
    has_race: bool = False

    def access(self, lane: int, point: int, reads: set[int], writes: set[int]) -> None:
        """An access that is a point of the graph."""
        index = len(self.lanes)
        self.lanes.append(lane)
        self.points.append(point)
        before = self.graph.before(point)
        for touched, is_write in ((reads, False), (writes, True)):
            for byte in touched & self.history.keys():
                self._touch(byte, index, before, is_write=is_write)

    def _touch(self, byte: int, index: int, before: set[int], *, is_write: bool) -> None:
        history = self.history[byte]
        racing = [
            (first, writes)
            for first, writes in history
            if (writes or is_write)
            and self.lanes[first] != self.lanes[index]
            and self.points[first] not in before
        ]
        self.has_race |= bool(racing)
        last = max((at for at, (_, writes) in enumerate(history) if writes), default=-1)
        latest = {(self.lanes[first], writes): first for first, writes in history[max(last, 0) :]}
        for first, writes in racing:
            if latest.get((self.lanes[first], writes)) == first:
                self.found[first, writes, index, is_write] += 1
        history.append((index, is_write))


class Told:
    """Recorders and a model that are told the same program."""

    def __init__(self, *recorders: Recorder) -> None:
        self.recorders, self.model = recorders, Model()
        self._records: dict[int, int] = {}  # event -> the point of its latest record
        for recorder in recorders:
            for thread in range(THREADS):
                recorder.add_thread(str(thread))
            for lane in range(THREADS, LANES):
                recorder.add_stream(
                    str(lane), is_legacy=lane == LEGACY, is_blocking=lane == BLOCKING
                )
        for block in range(BLOCKS):
            self.hand_out(block)

    def tell(self, kind: str, *details: object) -> None:
        """One statement."""
        getattr(self, kind)(*details)

    def access(self, thread: int, stream: int, touched: tuple[Ranges, Ranges]) -> None:
        """stream: 0 for an access of the thread itself, else one more than the stream's place."""
        reads, writes = touched
        label, lane = f"{len(self.model.lanes)}#1", THREADS + stream - 1 if stream else thread
        for recorder in self.recorders:
            if stream:
                recorder.issue(thread, lane, label, (), reads, writes)
            else:
                recorder.host(thread, label, (), reads, writes)
        graph = self.model.graph
        if stream:
            self._wait_for_legacy(lane)
        point = graph.step(lane, graph.last[thread])
        self.model.access(lane, point, bytes_of(reads), bytes_of(writes))

    def record(self, thread: int, stream: int, event: int) -> None:
        """A thread records an event on a stream, given by its lane."""
        for recorder in self.recorders:
            recorder.record(event, thread, stream, ())
        graph = self.model.graph
        self._wait_for_legacy(stream)
        self._records[event] = graph.point(graph.last[stream], graph.last[thread])

    def wait(self, lane: int, event: int) -> None:
        """A lane waits for the latest record of an event; one that never was is nothing."""
        for recorder in self.recorders:
            recorder.wait(lane, event, ())
        if event in self._records:
            self.model.graph.step(lane, [self._records[event]])

    def wait_stream(self, thread: int, stream: int) -> None:
        """A thread waits for all that a stream was given."""
        for recorder in self.recorders:
            recorder.wait_stream(thread, stream, ())
        self._wait_for_legacy(stream)
        self.model.graph.step(thread, self.model.graph.last[stream])

    def hand_over(self, thread: int, other: int) -> None:
        """A thread hands on what it did, and another takes it."""
        for recorder in self.recorders:
            recorder.take(other, recorder.hand_on(thread))
        self.model.graph.step(other, self.model.graph.last[thread])

    def free(self, block: int) -> None:
        """A block of memory is no more."""
        for recorder in self.recorders:
            recorder.memory.remove(SIZE * block)
        for byte in range(SIZE * block, SIZE * (block + 1)):
            self.model.history.pop(byte, None)

    def hand_out(self, block: int) -> None:
        """A block of memory is there, and nothing is known of it."""
        for recorder in self.recorders:
            recorder.memory.add(SIZE * block, SIZE)
        for byte in range(SIZE * block, SIZE * (block + 1)):
            self.model.history[byte] = []

    def _wait_for_legacy(self, stream: int) -> None:
        graph = self.model.graph
        if stream == BLOCKING:
            graph.last[stream] = [*graph.last[stream], *graph.last[LEGACY]]
        elif stream == LEGACY:
            graph.last[stream] = [*graph.last[stream], *graph.last[BLOCKING]]


def found_by(recorder: Recorder) -> dict[Key, int]:
    """Bytes by pair of accesses, as a recorder has them: labels are the accesses' numbers."""
    return {
        (int(c.first.label[:-2]), c.first_writes, int(c.second.label[:-2]), c.second_writes): (
            c.nbytes
        )
        for c in recorder.conflicts.values()
    }


spans = st.tuples(st.integers(0, BLOCKS - 1), st.integers(0, SIZE - 1), st.integers(1, SIZE)).map(
    lambda span: (SIZE * span[0] + span[1], SIZE * span[0] + min(SIZE, span[1] + span[2]))
)
some = st.lists(spans, min_size=1, max_size=2, unique_by=lambda span: span[0] // SIZE).map(tuple)
threads, lanes = st.integers(0, THREADS - 1), st.integers(0, LANES - 1)
streams, events = st.integers(THREADS, LANES - 1), st.integers(0, EVENTS - 1)
touched = st.one_of(
    st.tuples(some, st.just(())), st.tuples(st.just(()), some), st.tuples(some, some)
)
DETAILS: dict[str, SearchStrategy[Statement]] = {
    "access": st.tuples(threads, st.integers(0, STREAMS), touched),
    "record": st.tuples(threads, streams, events),
    "wait": st.tuples(lanes, events),
    "wait_stream": st.tuples(threads, streams),
    "hand_over": st.tuples(threads, threads),
    "free": st.tuples(st.integers(0, BLOCKS - 1)),
    "hand_out": st.tuples(st.integers(0, BLOCKS - 1)),
}
# How often each is drawn.
KINDS = (*["access"] * 12, *["record"] * 2, *["wait"] * 2, *DETAILS)
statements = st.sampled_from(KINDS).flatmap(
    lambda kind: DETAILS[kind].map(lambda details: (kind, *details))
)
programs = st.lists(statements, min_size=8, max_size=24)
