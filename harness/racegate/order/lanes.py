"""The lanes of a program: its streams and its host threads, which appear while it runs."""

from __future__ import annotations

from racegate.order.clocks import Clock
from racegate.order.interface import Order


class Lanes:
    """The clocks of all lanes, and the numbers of what they did.

    A stream has a lane for each thread that gives it work; its first one stands for it.

    Threads of the program add lanes at once, and the one that was numbered first may be written
    down last: so what is known of a lane stands under its number, and a lane that is not written
    down yet counts as a thread's, for nothing was done on it.

    names: by lane number
    """

    def __init__(self, order: Order) -> None:
        self._order = order
        self.names: dict[int, str] = {}
        self._streams: dict[int, int] = {}  # by lane; -1: a host thread
        self._given: dict[tuple[int, int], int] = {}

    def add(
        self, name: str, *, is_host: bool, is_legacy: bool = False, is_blocking: bool = False
    ) -> int:
        """A new lane; returns its number."""
        lane = self._order.add_lane(is_host, is_legacy, is_blocking)
        self.names[lane], self._streams[lane] = name, -1 if is_host else lane
        return lane

    def all_names(self) -> tuple[str, ...]:
        """By lane number."""
        return tuple(self.names[lane] for lane in sorted(self.names))

    def is_host(self, lane: int) -> bool:
        return self._streams.get(lane, -1) < 0

    def stream_of(self, lane: int) -> int:
        """The first lane of the same stream; of a host thread its own."""
        return lane if self.is_host(lane) else self._streams[lane]

    def streams(self) -> list[int]:
        """The first lanes of all streams."""
        return [lane for lane, stream in self._known() if lane == stream]

    def threads(self) -> list[int]:
        """The lanes of all host threads."""
        return [lane for lane, stream in self._known() if stream < 0]

    def given(self, stream: int) -> list[int]:
        """All lanes of a stream."""
        return [lane for lane, first in self._known() if first == stream]

    def of(self, thread: int, stream: int) -> int:
        """The lane of what a thread gives a stream."""
        lane = self._given.get((thread, stream))
        if lane is None:
            lane = self._given[thread, stream] = self._order.lane_of(thread, stream)
            self.names.setdefault(lane, self.names[stream])
            self._streams.setdefault(lane, stream)
        return lane

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
        return self._order.put(thread, self.of(thread, stream))

    def release(self, thread: int) -> Clock:
        """What a host thread hands on: all it did until now, nothing of what comes after."""
        clock = self.clock(thread)
        self._order.next_number(thread)
        return clock

    def _known(self) -> list[tuple[int, int]]:
        """All lanes with their streams, by lane."""
        return sorted(self._streams.items())
