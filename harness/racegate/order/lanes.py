"""The lanes of a program: its streams and its host threads, which appear while it runs."""

from __future__ import annotations

from racegate.order.clocks import Clock
from racegate.order.interface import Order


class Lanes:
    """The clocks of all lanes, and the numbers of what they did.

    names: by lane number
    """

    def __init__(self, order: Order) -> None:
        self._order = order
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
