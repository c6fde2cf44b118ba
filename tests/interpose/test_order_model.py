"""The compiled recorder against a model of every byte by itself, and against all pairs of accesses.

Ranges overlap anyhow, memory is freed and handed out again, lanes come to know others.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from racegate.order.recorder import Recorder

THREADS, STREAMS, BLOCKS, SIZE = 2, 2, 2, 4  # the blocks lie side by side
LANES = THREADS + STREAMS
Key = tuple[int, bool, int, bool]  # earlier and later access, and whether they write
Ranges = tuple[tuple[int, int], ...]

spans = st.tuples(st.integers(0, BLOCKS - 1), st.integers(0, SIZE - 1), st.integers(1, SIZE)).map(
    lambda span: (SIZE * span[0] + span[1], SIZE * span[0] + min(SIZE, span[1] + span[2]))
)
some = st.lists(spans, min_size=1, max_size=2, unique_by=lambda span: span[0] // SIZE).map(tuple)
threads, lanes = st.integers(0, THREADS - 1), st.integers(0, LANES - 1)
touched = st.one_of(
    st.tuples(some, st.just(())), st.tuples(st.just(()), some), st.tuples(some, some)
)
STEPS = {
    "access": st.tuples(threads, st.integers(0, STREAMS), touched),
    "learn": st.tuples(lanes, lanes),
    "free": st.tuples(st.integers(0, BLOCKS - 1)),
    "hand_out": st.tuples(st.integers(0, BLOCKS - 1)),
}
KINDS = (*["access"] * 12, *["learn"] * 3, "free", "hand_out")
step = st.sampled_from(KINDS).flatmap(lambda kind: st.tuples(st.just(kind), STEPS[kind]))


@dataclass
class Model:
    """Who is before whom as sets of accesses, and of every byte its last write and, by lane, the
    last read since. born: per block the first access that its present bytes can have had
    """

    lanes: list[int] = field(default_factory=list)  # of each access
    before: list[set[int]] = field(default_factory=list)
    bytes_: list[tuple[set[int], set[int]]] = field(default_factory=list)
    known: list[set[int]] = field(default_factory=lambda: [set() for _ in range(LANES)])
    history: dict[int, list[tuple[int, bool]]] = field(default_factory=dict)
    found: Counter[Key] = field(default_factory=Counter)
    has_race: bool = False

    def access(self, thread: int, stream: int, reads: set[int], writes: set[int]) -> None:
        """stream: 0 for an access of the thread itself, else one more than the stream's place."""
        lane, index = THREADS + stream - 1 if stream else thread, len(self.lanes)
        self.known[lane] |= self.known[thread]
        self.lanes.append(lane)
        self.before.append(set(self.known[lane]))
        for bytes_, is_write in ((reads, False), (writes, True)):
            for byte in bytes_ & self.history.keys():
                self.touch(byte, index, is_write=is_write)
        self.known[lane].add(index)

    def touch(self, byte: int, index: int, *, is_write: bool) -> None:
        history = self.history[byte]
        racing = [
            (first, writes)
            for first, writes in history
            if (writes or is_write) and self.is_race(first, index)
        ]
        self.has_race |= bool(racing)
        last = max((at for at, (_, writes) in enumerate(history) if writes), default=-1)
        latest = {(self.lanes[first], writes): first for first, writes in history[max(last, 0) :]}
        for first, writes in racing:
            if latest.get((self.lanes[first], writes)) == first:
                self.found[first, writes, index, is_write] += 1
        history.append((index, is_write))

    def is_race(self, first: int, second: int) -> bool:
        return self.lanes[first] != self.lanes[second] and first not in self.before[second]


def bytes_of(found: Ranges) -> set[int]:
    return {byte for low, high in found for byte in range(low, high)}


class Both:
    """The recorder and the model, told the same."""

    def __init__(self) -> None:
        self.recorder, self.model = Recorder(), Model()
        for thread in range(THREADS):
            self.recorder.add_thread(str(thread))
        for stream in range(STREAMS):
            self.recorder.add_stream(str(stream))

    def access(self, thread: int, stream: int, touched: tuple[Ranges, Ranges]) -> None:
        reads, writes = touched
        label = f"{len(self.model.lanes)}#1"
        if stream:
            self.recorder.issue(thread, THREADS + stream - 1, label, (), reads, writes)
        else:
            self.recorder.host(thread, label, (), reads, writes)
        self.model.access(thread, stream, bytes_of(reads), bytes_of(writes))

    def learn(self, lane: int, other: int) -> None:
        lanes = self.recorder.lanes
        clock = lanes.release(other) if other < THREADS else lanes.clock(other)
        lanes.learn(lane, clock)
        self.model.known[lane] |= self.model.known[other]

    def free(self, block: int) -> None:
        self.recorder.memory.remove(SIZE * block)
        for byte in range(SIZE * block, SIZE * (block + 1)):
            self.model.history.pop(byte, None)

    def hand_out(self, block: int) -> None:
        self.recorder.memory.add(SIZE * block, SIZE)
        for byte in range(SIZE * block, SIZE * (block + 1)):
            self.model.history[byte] = []

    def found(self) -> dict[Key, int]:
        """Bytes by pair of accesses, as the recorder has them."""
        number = lambda access: int(access.label.partition("#")[0])  # noqa: E731
        return {
            (number(c.first), c.first_writes, number(c.second), c.second_writes): c.nbytes
            for c in self.recorder.conflicts.values()
        }


@given(st.lists(step, min_size=8, max_size=24))
def test_conflicts_are_those_of_every_byte_by_itself(
    steps: list[tuple[str, tuple[object, ...]]],
) -> None:
    both = Both()
    for block in range(BLOCKS):
        both.hand_out(block)
    for kind, details in steps:
        getattr(both, kind)(*details)
    assert both.found() == dict(both.model.found)
    assert bool(both.found()) == both.model.has_race  # of all pairs, not only the latest


def test_what_a_byte_no_longer_remembers_costs_nothing() -> None:
    both = Both()
    both.hand_out(0)
    for low in range(SIZE):
        both.access(0, 1, ((), ((low, low + 1),)))
    assert both.recorder.memory.cells() == SIZE
    both.access(0, 1, ((), ((0, SIZE),)))
    assert both.recorder.memory.cells() == 1
