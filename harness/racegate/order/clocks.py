"""Vector clocks over lanes that appear while the program runs.

A lane is a stream or a host thread. The clock of a lane holds, per lane, the last number of that
lane which is known to have happened before whatever the lane does next. Stream operations and host
accesses are numbered per lane from 1.
"""

from __future__ import annotations

from racegate.order.native.recording import Order, new_order

Clock = list[int]  # per lane; a missing entry is 0


def join(clock: Clock, other: Clock) -> None:
    """Adds to clock what other knows."""
    missing = len(other) - len(clock)
    if missing > 0:
        clock.extend([0] * missing)
    for lane, number in enumerate(other):
        if number > clock[lane]:
            clock[lane] = number


def knows(clock: Clock, lane: int, number: int) -> bool:
    """Whether the operation with this number of the lane is known to the clock."""
    return lane < len(clock) and clock[lane] >= number


def covers(clock: Clock, other: Clock) -> bool:
    """Whether clock knows all that other knows."""
    for known, number in zip(clock, other, strict=False):
        if number > known:
            return False
    return not any(other[len(clock) :])


class Lanes:
    """The clocks of all lanes, and the numbers of what they did.

    names: by lane number
    """

    def __init__(self, order: Order | None = None) -> None:
        self._order = new_order() if order is None else order
        self.names: list[str] = []
        self._host: list[bool] = []

    def add(
        self, name: str, *, is_host: bool, is_legacy: bool = False, is_blocking: bool = False
    ) -> int:
        """A new lane; returns its number."""
        self.names.append(name)
        self._host.append(is_host)
        return self._order.add_lane(is_host, is_legacy, is_blocking)

    def is_host(self, lane: int) -> bool:
        return self._host[lane]

    def number(self, lane: int) -> int:
        """Of what the lane did last."""
        return self._order.last_number(lane)

    def clock(self, lane: int) -> Clock:
        """A copy of what the lane knows now."""
        return self._order.clock_of(lane)

    def learn(self, lane: int, clock: Clock) -> None:
        """The lane comes to know what the clock knows."""
        self._order.learn(lane, clock)

    def issue(self, thread: int, stream: int) -> int:
        """A host thread puts an operation on a stream; returns its number there.

        What the thread does afterwards is not ordered before the operation.
        """
        return self._order.put(thread, stream)

    def release(self, thread: int) -> Clock:
        """What a host thread hands on: all it did until now, nothing of what comes after."""
        clock = self.clock(thread)
        self._order.next_number(thread)
        return clock
