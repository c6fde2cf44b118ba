"""Lanes that threads of a program add at once."""

from __future__ import annotations

from racegate.order.compiled import compiled_order
from racegate.order.lanes import Lanes


def test_a_lane_keeps_its_own_name_when_another_thread_adds_one_meanwhile() -> None:
    order = compiled_order()
    lanes = Lanes(order)
    stream = lanes.add("a stream", is_host=False)
    first, second, third = (lanes.add(name, is_host=True) for name in ("first", "second", "third"))
    assert lanes.of(first, stream) == stream
    met: list[int] = []

    def number_and_lose_the_turn(thread: int, stream: int) -> int:
        lane = order.lane_of(thread, stream)
        met.append(lanes.add("another", is_host=True))
        lanes._order = order
        met.append(lanes.of(third, stream))
        return lane

    lanes._order = order._replace(lane_of=number_and_lose_the_turn)
    own = lanes.of(second, stream)
    assert (lanes.names[own], lanes.stream_of(own)) == ("a stream", stream)
    assert lanes.given(stream) == [stream, own, met[1]]
    assert lanes.threads() == [first, second, third, met[0]]
    assert [lanes.names[lane] for lane in met] == ["another", "a stream"]
