"""Held operations: they run late, and never where the program's own edges forbid it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from python_order import python_order
from racegate.history.schedule import Hold
from racegate.interpose.device.queue import Queue, covers, covers_many
from racegate.order.lanes import Lanes

HOST = 0
actions = st.one_of(
    st.tuples(st.just("issue"), st.integers(0, 2)),
    st.tuples(st.just("order"), st.integers(0, 2), st.integers(0, 2)),
    st.tuples(st.just("wait"), st.integers(0, 2)),
)


class Device:
    """Streams of operations that write down when they ran, and what must have run before."""

    def __init__(self, holds: tuple[Hold, ...]) -> None:
        self.queue = Queue(holds)
        self.lanes = Lanes(python_order())
        self.lanes.add("host", is_host=True)
        self.streams = [self.lanes.add(f"s{i}", is_host=False) for i in range(3)]
        self.before: dict[int, set[int]] = {}
        self.on_stream: list[set[int]] = [set(), set(), set()]
        self.ran: list[int] = []

    def issue(self, stream: int) -> int:
        lane, operation = self.streams[stream], len(self.before)
        number = self.lanes.issue(HOST, lane)
        self.before[operation] = set(self.on_stream[stream])
        self.on_stream[stream].add(operation)
        clock = self.lanes.clock(lane)
        run = lambda: self.ran.append(operation)  # noqa: E731
        self.queue.submit(f"op@x:{operation}#1", lane, number, clock, run)
        return operation

    def order(self, first: int, then: int) -> None:
        self.lanes.learn(self.streams[then], self.lanes.clock(self.streams[first]))
        self.on_stream[then] |= self.on_stream[first]

    def wait(self, stream: int) -> None:
        self.lanes.learn(HOST, self.lanes.clock(self.streams[stream]))
        self.queue.force(self.lanes.clock(HOST))
        assert self.on_stream[stream] <= set(self.ran)
        for other in self.on_stream:
            other |= self.on_stream[stream]


@given(st.lists(actions, max_size=20), st.sets(st.integers(0, 9), max_size=4))
def test_every_operation_runs_once_after_all_that_is_before_it(
    steps: list[tuple[object, ...]], held: set[int]
) -> None:
    device = Device(tuple(Hold(op=f"op@x:{number}#1") for number in sorted(held)))
    for name, *rest in steps:
        getattr(device, str(name))(*rest)
    device.queue.force_all()
    assert sorted(device.ran) == sorted(device.before)
    place = {operation: index for index, operation in enumerate(device.ran)}
    for operation, before in device.before.items():
        assert all(place[other] < place[operation] for other in before)


def test_nothing_held_runs_at_once() -> None:
    device = Device(())
    assert device.queue.is_eager
    assert [device.issue(0), device.issue(1)] == device.ran


def test_a_held_operation_keeps_what_is_behind_it_and_nothing_else() -> None:
    device = Device((Hold(op="op@x:0#1"),))
    device.issue(0)
    device.issue(0)
    device.issue(1)
    assert device.ran == [2]
    assert device.queue.realised == {"op@x:0#1 until forced": 1}
    device.wait(0)
    assert device.ran == [2, 0, 1]


def test_a_hold_ends_where_it_says_and_what_was_behind_it_follows() -> None:
    device = Device((Hold(op="op@x:0#1", until="host read@x:7#1"),))
    device.issue(0)
    device.issue(0)
    device.queue.reach("host read@x:6#1")
    assert device.ran == []
    device.queue.reach("host read@x:7#1")
    assert device.ran == [0, 1]


def test_a_star_holds_a_kind() -> None:
    assert covers(Hold(op="d2h*"), "d2h@x:1#1")
    assert not covers(Hold(op="d2h*"), "h2d@x:1#1")
    assert covers(Hold(op="everything"), "h2d@x:1#1")


def test_a_hold_of_one_operation_is_done_with_when_it_ran() -> None:
    """From then on nothing needs a name."""
    device = Device((Hold(op="op@x:0#1"),))
    assert device.queue.runs_now("other") and not device.queue.runs_now("op")
    device.issue(0)
    assert not device.queue.runs_now("other")
    device.wait(0)
    assert device.queue.is_eager and device.queue.runs_now("op")


def test_a_hold_of_many_operations_is_never_done_with() -> None:
    device = Device((Hold(op="op@*"),))
    for _ in range(2):
        device.issue(0)
        device.wait(0)
    assert not device.queue.is_eager and not device.queue.runs_now("other")
    assert device.queue.realised == {"op@* until forced": 2}


@pytest.mark.parametrize(
    ("operation", "is_many"), [("everything", True), ("d2h*", True), ("d2h@a#1", False)]
)
def test_a_hold_of_everything_or_with_a_star_keeps_back_more_than_one(
    operation: str, *, is_many: bool
) -> None:
    hold = Hold(op=operation, until="forced")
    assert covers_many(hold) is is_many
    assert covers(hold, "d2h@a#1") and covers(hold, "d2h@a#2") is is_many
