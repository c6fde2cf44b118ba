"""Holds on a real GPU, on a GPU that is played: streams that stop at latches."""

from __future__ import annotations

import weakref
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from python_order import python_order
from racegate.history.schedule import Hold
from racegate.interpose.device.queue import Queue
from racegate.interpose.gpu.queue import LatchQueue
from racegate.order.lanes import Lanes

HOST = 0
STREAMS = 3


class PlayedGpu:
    """Streams of work that run as far as they can at any time. A wait for what can never run is an
    error: a program would hang.
    """

    def __init__(self) -> None:
        self.streams: list[list[object]] = [[] for _ in range(STREAMS)]
        self.at = [0] * STREAMS  # how far each stream has run
        self.opened: set[int] = set()
        self.latches = 0
        self.expired: set[int] = set()
        self.ran: list[object] = []

    def push(self, stream: int, item: object) -> None:
        self.streams[stream].append(item)
        self.go_on()

    def go_on(self) -> None:
        """Everything that can run has run."""
        moved = True
        while moved:
            moved = False
            for stream, items in enumerate(self.streams):
                while self.at[stream] < len(items) and self._may_run(items[self.at[stream]]):
                    self.ran.append(items[self.at[stream]])
                    self.at[stream] += 1
                    moved = True

    def _may_run(self, item: object) -> bool:
        match item:
            case ("latch", int(latch)):
                return latch in self.opened
            case ("wait", int(stream), int(count)):
                return self.at[stream] >= count
        return True

    # ---- what a queue asks

    def put(self, stream: int) -> int:
        self.latches += 1
        self.push(stream, ("latch", self.latches))
        return self.latches

    def open(self, latch: int) -> None:
        self.opened.add(latch)
        self.go_on()

    def has_expired(self, latch: int) -> bool:
        return latch in self.expired

    def mark(self, stream: int) -> int:
        return 1 + stream + STREAMS * len(self.streams[stream])

    def is_complete(self, mark: int) -> bool:
        count, stream = divmod(mark - 1, STREAMS)
        return self.at[stream] >= count

    def wait_mark(self, mark: int) -> None:
        assert self.is_complete(mark), "the host would wait for ever"

    def wait_stream(self, stream: int) -> None:
        assert self.at[stream] == len(self.streams[stream]), "the host would wait for ever"

    def expire(self) -> None:
        """The watchdog opens all that is closed."""
        self.expired |= set(range(1, self.latches + 1)) - self.opened
        self.opened |= self.expired
        self.go_on()


class Program:
    """Issues operations and waits, on a played GPU and on the virtual device's queue at once."""

    def __init__(self, *holds: Hold) -> None:
        self.gpu = PlayedGpu()
        self.lanes = Lanes(python_order())
        self.lanes.add("host", is_host=True)
        self.lane_of = [self.lanes.add(f"s{i}", is_host=False) for i in range(STREAMS)]
        self.queue = LatchQueue(
            self.gpu, lambda lane: self.lane_of.index(lane), holds=holds, settles=lambda: True
        )
        self.virtual = Queue(holds)
        self.virtual_ran: list[str] = []
        self.count = 0

    def issue(self, stream: int) -> str:
        self.count += 1
        label, lane = f"op@x:{self.count}#1", self.lane_of[stream]
        for queue in (self.queue, self.virtual):
            queue.reach(label)
        number = self.lanes.issue(HOST, lane)
        clock = self.lanes.clock(lane)
        self.queue.submit(label, lane, number, clock, lambda: self.gpu.push(stream, label))
        self.queue.issued()
        self.virtual.submit(label, lane, number, clock, lambda: self.virtual_ran.append(label))
        return label

    def order(self, first: int, then: int) -> None:
        self.lanes.learn(self.lane_of[then], self.lanes.clock(self.lane_of[first]))
        self.gpu.push(then, ("wait", first, len(self.gpu.streams[first])))

    def wait(self, stream: int) -> None:
        """As a program does it: the queue is told, then the host waits."""
        self.lanes.learn(HOST, self.lanes.clock(self.lane_of[stream]))
        for queue in (self.queue, self.virtual):
            queue.force(self.lanes.clock(HOST))
        self.gpu.wait_stream(stream)

    def reach(self, label: str) -> None:
        for queue in (self.queue, self.virtual):
            queue.reach(label)

    @property
    def ran(self) -> list[object]:
        return [item for item in self.gpu.ran if isinstance(item, str)]


class _Tensor:
    """Something that an operation is given."""


def test_what_a_held_operation_was_given_may_be_freed_and_its_memory_given_to_others() -> None:
    program = Program(Hold(op="op@x:1#1", until="forced"))
    tensor = _Tensor()
    alive, lane = weakref.ref(tensor), program.lane_of[0]
    program.queue.submit("op@x:1#1", lane, 1, program.lanes.clock(lane), partial(id, tensor))
    program.queue.issued()
    del tensor
    assert program.queue.has_pending()
    assert alive() is None


actions = st.one_of(
    st.tuples(st.just("issue"), st.integers(0, STREAMS - 1)),
    st.tuples(st.just("order"), st.integers(0, STREAMS - 1), st.integers(0, STREAMS - 1)),
    st.tuples(st.just("wait"), st.integers(0, STREAMS - 1)),
)
held = st.lists(
    st.builds(
        Hold,
        op=st.integers(1, 8).map(lambda i: f"op@x:{i}#1"),
        until=st.one_of(st.just("forced"), st.integers(1, 12).map(lambda i: f"op@x:{i}#1")),
    ),
    max_size=3,
    unique_by=lambda hold: hold.operation,
)


@given(held, st.lists(actions, max_size=20))
def test_a_gpu_with_latches_runs_what_the_virtual_device_runs_and_nothing_hangs(
    holds: list[Hold], steps: list[tuple[str, int] | tuple[str, int, int]]
) -> None:
    program = Program(*holds)
    for step in steps:
        match step:
            case ("issue", stream):
                program.issue(stream)
            case ("wait", stream):
                program.wait(stream)
            case ("order", first, then) if first != then:
                program.order(first, then)
        assert set(program.ran) == set(program.virtual_ran)
    for queue in (program.queue, program.virtual):
        queue.force_all()
    assert set(program.ran) == set(program.virtual_ran)
    assert len(program.ran) == program.count
    assert program.queue.realised == program.virtual.realised
    assert not program.queue.expired


def test_a_held_operation_lands_before_the_access_that_ends_its_hold() -> None:
    program = Program(Hold(op="op@x:1#1", until="host read@x:9#1"))
    program.issue(0)
    program.issue(0)
    assert program.ran == []
    program.reach("host read@x:9#1")
    assert program.ran == ["op@x:1#1", "op@x:2#1"]
    assert program.queue.realised == {"op@x:1#1 until host read@x:9#1": 1}


def test_a_latch_that_stood_too_long_does_not_count() -> None:
    program = Program(Hold(op="op@x:1#1"))
    program.issue(0)
    program.gpu.expire()
    assert program.ran == ["op@x:1#1"]
    program.queue.force_all()
    assert program.queue.realised == {"op@x:1#1 until forced": 0}
    assert program.queue.expired == {"op@x:1#1 until forced": 1}


def test_a_latch_that_could_not_be_put_does_not_count() -> None:
    class Without(PlayedGpu):
        def put(self, stream: int) -> None:  # type: ignore[override]
            return None

    program = Program(Hold(op="op@x:1#1"))
    program.gpu.__class__ = Without
    program.issue(0)
    program.queue.force_all()
    assert program.queue.realised == {"op@x:1#1 until forced": 0}
    assert program.ran == ["op@x:1#1"]


def test_without_holds_nothing_is_waited_for() -> None:
    gpu = PlayedGpu()
    queue = LatchQueue(gpu, lambda lane: 0)
    assert queue.is_eager
    queue.submit("op@x:1#1", 1, 1, [0, 1], lambda: gpu.push(0, "op"))
    queue.issued()
    assert gpu.ran == ["op"]
    assert not queue.has_pending()


def test_a_part_of_a_graph_is_not_held_on_a_gpu() -> None:
    hold = Hold(op="mul@x:1#1")
    assert Queue((hold,)).is_held("mul@x:1#1")
    queue = LatchQueue(PlayedGpu(), lambda lane: 0, holds=(hold,))
    assert not queue.is_held("mul@x:1#1")
    assert not any(queue.realised.values())
