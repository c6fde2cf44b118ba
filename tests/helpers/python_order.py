"""The order of a program's events in Python, to compare that in C with: `clocks` and `rows` of the
product, and lanes of threads.

A stretch of memory is a storage, its bytes are the rows. That is too slow for programs of many
events.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from python_streams import Streams
from racegate.order.clocks import Clock, Clocks, join
from racegate.order.interface import Order, Raced, Ranges, RawAccess, RawRace, Stack
from racegate.order.rows import Shadow


@dataclass(slots=True)
class _Stretch:
    """Memory that was allocated at once. low, high: its first byte, one past its last"""

    low: int
    high: int
    is_watched: bool
    shadow: Shadow[RawAccess] = field(default_factory=Shadow)


class _PythonOrder:
    """The functions of `Order`, which says what they mean."""

    def __init__(self) -> None:
        self._clocks = Clocks()
        self._streams = Streams(self._clocks)
        self._stretches: list[_Stretch] = []  # by address
        self._count = 0
        self._latest: RawAccess | None = None
        self._is_watched = False

    # ---- clocks

    def add_lane(self, is_host: bool, is_legacy: bool, is_blocking: bool) -> int:  # noqa: FBT001  as in C
        lane = self._clocks.add()
        if is_host:
            self._clocks.tick(lane)
        else:
            self._streams.add(lane, is_legacy=is_legacy, is_blocking=is_blocking)
        return lane

    def lane_of(self, thread: int, stream: int) -> int:
        return self._streams.lane_of(thread, stream)

    def last_number(self, lane: int) -> int:
        return self._clocks.number(lane)

    def next_number(self, lane: int) -> int:
        return self._clocks.tick(lane)

    def clock_of(self, lane: int) -> Clock:
        return list(self._clocks.known(lane))

    def learn(self, lane: int, clock: Clock) -> None:
        self._clocks.learn(lane, clock)

    def make_wait(self, thread: int, lane: int, clock: Clock) -> None:
        self._streams.make_wait(thread, lane, clock)

    def put(self, thread: int, lane: int) -> int:
        self._streams.issue(thread, lane)
        return self._clocks.number(lane)

    def count_event(self) -> int:
        self._count += 1
        return self._count

    def events(self) -> int:
        return self._count

    def record(self, thread: int, stream: int) -> Clock:
        self._count += 1
        covered = self._streams.given(thread, stream)
        join(covered, self._clocks.known(thread))
        self._clocks.tick(thread)
        return covered

    def stream_clock(self, thread: int, stream: int) -> Clock:
        return self._streams.waited(thread, stream)

    # ---- accesses

    def issue(
        self, thread: int, lane: int, label: str, stack: Stack, reads: Ranges, writes: Ranges
    ) -> Raced | None:
        self._streams.issue(thread, lane)
        return self._access(lane, label, stack, reads, writes)

    def host(
        self, thread: int, label: str, stack: Stack, reads: Ranges, writes: Ranges
    ) -> Raced | None:
        return self._access(thread, label, stack, reads, writes)

    def _access(
        self, lane: int, label: str, stack: Stack, reads: Ranges, writes: Ranges
    ) -> Raced | None:
        self._count += 1
        access = self._latest = (self._count, lane, self._clocks.number(lane), label, stack)
        self._is_watched = False
        races = [race for low, high in reads for race in self._touch(access, low, high, "read")]
        races += [race for low, high in writes for race in self._touch(access, low, high, "write")]
        return (access, tuple(races)) if races else None

    def _touch(self, access: RawAccess, low: int, high: int, how: str) -> list[RawRace]:
        stretch = self._find(low)
        if stretch is None or low >= high:
            return []
        self._is_watched |= stretch.is_watched
        base, clock = stretch.low, self._clocks.known(access[1])
        rows = mask_of([(low - base, min(high, stretch.high) - base)])
        touch = stretch.shadow.write if how == "write" else stretch.shadow.read
        return [
            (earlier.event, earlier.is_write, base + first, base + end, how == "write")
            for earlier, common in touch(access, access[1], access[2], clock, rows)
            for first, end in ranges_of(common)
        ]

    def _find(self, address: int) -> _Stretch | None:
        at = bisect_right(self._stretches, address, key=attrgetter("low"))
        stretch = self._stretches[at - 1] if at else None
        return stretch if stretch is not None and address < stretch.high else None

    def latest(self) -> RawAccess:
        """The access told last, of which there is one."""
        assert self._latest is not None
        return self._latest

    def is_watched(self) -> bool:
        return self._is_watched

    # ---- memory

    def add_memory(self, low: int, size: int, is_watched: bool) -> None:  # noqa: FBT001  as in C
        self.remove_memory(low)
        stretch = _Stretch(low, low + size, is_watched)
        insort(self._stretches, stretch, key=attrgetter("low"))

    def remove_memory(self, low: int) -> None:
        self._stretches = [stretch for stretch in self._stretches if stretch.low != low]

    def adopt(self, thread: int, lane: int, clock: Clock, low: int, high: int) -> None:
        if lane != thread:
            self._streams.issue(thread, lane)
        stretch = self._find(low)
        if stretch is not None and low < high:
            rows = mask_of([(low - stretch.low, min(high, stretch.high) - stretch.low)])
            stretch.shadow.adopt(lane, self._clocks.number(lane), clock, rows)

    def is_memory(self, address: int) -> bool:
        return self._find(address) is not None

    def unwritten(self, low: int, high: int, since: int) -> Ranges:
        stretch = self._find(low)
        if stretch is None or low >= high:
            return ()
        base = stretch.low
        rows = mask_of([(low - base, min(high, stretch.high) - base)])
        for touch in stretch.shadow.writes_over(rows):
            if touch.event[0] > since:
                rows &= ~touch.rows
        return tuple((base + first, base + end) for first, end in ranges_of(rows))

    def count_cells(self) -> int:
        return sum(stretch.shadow.cells() for stretch in self._stretches)


def python_order() -> Order:
    """Clocks without lanes and a shadow of no memory."""
    order = _PythonOrder()
    return Order(*(getattr(order, name) for name in Order._fields))


def ranges_of(mask: int) -> list[tuple[int, int]]:
    """The rows in a mask as half-open ranges, ascending, that do not touch."""
    ranges = []
    while mask:
        first = (mask & -mask).bit_length() - 1
        run = mask >> first
        count = (~run & (run + 1)).bit_length() - 1  # trailing ones
        ranges.append((first, first + count))
        mask = run >> count << (first + count)
    return ranges


def mask_of(ranges: Sequence[tuple[int, int]]) -> int:
    """The mask of the rows in half-open ranges."""
    mask = 0
    for first, end in ranges:
        mask |= ((1 << (end - first)) - 1) << first
    return mask
