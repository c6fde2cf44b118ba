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
    """Points and edges. last: of each thread its last point, which what it does next comes after;
    given: of each stream what it was given, as the point of the thread and its own
    """

    def __init__(self) -> None:
        self.sources: list[list[int]] = []
        self.last: list[list[int]] = [[] for _ in range(THREADS)]
        self.given: dict[int, list[tuple[int, int]]] = {}

    def point(self, *sources: list[int]) -> int:
        """A thing that happens after all that is in the lists."""
        self.sources.append([point for points in sources for point in points])
        return len(self.sources) - 1

    def step(self, thread: int, *sources: list[int]) -> int:
        """A thing that a thread does after all that it did, and after others."""
        point = self.point(self.last[thread], *sources)
        self.last[thread] = [point]
        return point

    def known(self, point: int, stream: int) -> list[int]:
        """What a stream was given that a thread knows of at a point: what was given to it, and to
        those that it waits for.
        """
        before = {point} | self.before(point)
        waited = {LEGACY: (LEGACY, BLOCKING), BLOCKING: (LEGACY, BLOCKING)}.get(stream, (stream,))
        return [done for one in waited for at, done in self.given.get(one, []) if at in before]

    def give(self, thread: int, stream: int, *sources: list[int]) -> int:
        """A thing that a thread gives a stream, which comes after others too."""
        at = self.step(thread)
        done = self.point([at], self.known(at, stream), *sources)
        self.given.setdefault(stream, []).append((at, done))
        return done

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


Lane = tuple[int, int]  # a thread, and the stream that it gives work (0: the thread itself)


@dataclass(slots=True)
class Touch:
    """An access to one byte. points: who comes after one of them comes after it"""

    index: int
    lane: Lane
    points: list[int]
    is_write: bool


@dataclass(slots=True)
class Model:
    """What every byte by itself remembers: all accesses to it since it was handed out.

    count: of accesses; found: pairs as recorders have them, bytes by pair: of all unordered ones
    those whose first is the last write, or its lane's last read since
    has_race: whether any pair of accesses is unordered, remembered or not
    """

    graph: Graph = field(default_factory=Graph)
    count: int = 0
    history: dict[int, list[Touch]] = field(default_factory=dict)
    found: Counter[Key] = field(default_factory=Counter)
    has_race: bool = False

    def access(self, lane: Lane, point: int, reads: set[int], writes: set[int]) -> None:
        """An access that is a point of the graph."""
        before = self.graph.before(point)
        for touched, is_write in ((reads, False), (writes, True)):
            for byte in touched & self.history.keys():
                self._touch(byte, Touch(self.count, lane, [point], is_write), before)
        self.count += 1

    def _touch(self, byte: int, new: Touch, before: set[int]) -> None:
        history = self.history[byte]
        racing = [
            old
            for old in history
            if (old.is_write or new.is_write)
            and old.lane != new.lane
            and not before & set(old.points)
        ]
        self.has_race |= bool(racing)
        last = max((at for at, old in enumerate(history) if old.is_write), default=0)
        latest = {(old.lane, old.is_write): old for old in history[last:]}
        for old in racing:
            if latest.get((old.lane, old.is_write)) is old:
                self.found[old.index, old.is_write, new.index, new.is_write] += 1
        history.append(new)

    def adopt(self, byte: int, known: set[int], point: int) -> None:
        """What is known of a byte is known to all who come after a point."""
        for touch in self.history.get(byte, ()):
            if known & set(touch.points):
                touch.points = [touch.points[0], point]


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
        label, lane = f"{self.model.count}#1", THREADS + stream - 1
        for recorder in self.recorders:
            if stream:
                recorder.issue(thread, lane, label, (), reads, writes)
            else:
                recorder.host(thread, label, (), reads, writes)
        graph = self.model.graph
        point = graph.give(thread, lane) if stream else graph.step(thread)
        self.model.access((thread, stream), point, bytes_of(reads), bytes_of(writes))

    def record(self, thread: int, stream: int, event: int) -> None:
        """A thread records an event on a stream, given by its lane."""
        for recorder in self.recorders:
            recorder.record(event, thread, stream, ())
        self._records[event] = self.model.graph.give(thread, stream)

    def wait(self, thread: int, stream: int, event: int) -> None:
        """A thread waits for the latest record of an event, or makes a stream wait for it; one that
        never was is nothing. stream: as for `access`
        """
        lane = THREADS + stream - 1
        for recorder in self.recorders:
            if stream:
                recorder.make_wait(thread, lane, event, ())
            else:
                recorder.wait(thread, event, ())
        if event in self._records and stream:
            self.model.graph.give(thread, lane, [self._records[event]])
        elif event in self._records:
            self.model.graph.step(thread, [self._records[event]])

    def wait_stream(self, thread: int, stream: int) -> None:
        """A thread waits for all that it knows a stream to have been given."""
        for recorder in self.recorders:
            recorder.wait_stream(thread, stream, ())
        graph = self.model.graph
        at = graph.step(thread)
        own = {done for _, done in graph.given.get(stream, [])}
        waited = graph.known(at, stream)
        graph.step(thread, waited if stream == LEGACY else [one for one in waited if one in own])

    def take_block(self, thread: int, stream: int, block: int) -> None:
        """An allocator hands a block to a thread, which others had. stream: as for `access`"""
        low, lane, graph = SIZE * block, THREADS + stream - 1, self.model.graph
        for recorder in self.recorders:
            recorder.handed_out(thread, low, low + SIZE, stream=lane if stream else None)
        given = [done for _, done in graph.given.get(lane, [])]
        ends = given if stream else [point for last in graph.last for point in last]
        known = set(ends).union(*map(graph.before, ends))
        point = graph.give(thread, lane) if stream else graph.step(thread)
        for byte in range(low, low + SIZE):
            self.model.adopt(byte, known, point)

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
threads = st.integers(0, THREADS - 1)
streams, events = st.integers(THREADS, LANES - 1), st.integers(0, EVENTS - 1)
touched = st.one_of(
    st.tuples(some, st.just(())), st.tuples(st.just(()), some), st.tuples(some, some)
)
DETAILS: dict[str, SearchStrategy[Statement]] = {
    "access": st.tuples(threads, st.integers(0, STREAMS), touched),
    "record": st.tuples(threads, streams, events),
    "wait": st.tuples(threads, st.integers(0, STREAMS), events),
    "wait_stream": st.tuples(threads, streams),
    "hand_over": st.tuples(threads, threads),
    "take_block": st.tuples(threads, st.integers(0, STREAMS), st.integers(0, BLOCKS - 1)),
    "free": st.tuples(st.integers(0, BLOCKS - 1)),
    "hand_out": st.tuples(st.integers(0, BLOCKS - 1)),
}
# How often each is drawn.
KINDS = (*["access"] * 12, *["record"] * 2, *["wait"] * 2, *DETAILS)
statements = st.sampled_from(KINDS).flatmap(
    lambda kind: DETAILS[kind].map(lambda details: (kind, *details))
)
programs = st.lists(statements, min_size=8, max_size=24)
