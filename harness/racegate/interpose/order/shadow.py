"""Who touched which bytes last: one map from address ranges to accesses per stretch of memory.

After FastTrack (Flanagan and Freund 2009): per range the last write, and the last read of each lane
since. Identity is by address, so memory that an allocator splits, joins or hands out again keeps
its history: use again without an order is a race like any other.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence

import msgspec

from racegate.interpose.order.clocks import Clock

Frame = tuple[str, int, str]  # file, line, qualified name of the function


class Access(msgspec.Struct, frozen=True, gc=False):
    """One operation of a stream, or one host access. stack: the program's frames, innermost first.

    index: its place among all events of the run
    label: kind, place and count of the operation: the same in every run of a program that does not
        branch on values
    """

    index: int
    lane: int
    number: int
    label: str
    stack: tuple[Frame, ...]


class Race(msgspec.Struct, frozen=True, gc=False):
    """An earlier access to common bytes that nothing orders before the present one."""

    earlier: Access
    earlier_writes: bool
    low: int
    high: int


class _Cell:
    """One range in which all bytes have the same history."""

    __slots__ = ("high", "reads", "write")

    def __init__(self, high: int, write: Access | None, reads: dict[int, Access]) -> None:
        self.high = high
        self.write = write
        self.reads = reads


class _Stretch:
    """A stretch of memory that was allocated at once. Its cells cover it without gaps."""

    __slots__ = ("cells", "high", "low", "starts")

    def __init__(self, low: int, high: int) -> None:
        self.low = low
        self.high = high
        self.starts = [low]
        self.cells = [_Cell(high, None, {})]

    def cut(self, at: int) -> int:
        """Index of the cell that starts at `at`, cutting the one around it."""
        index = bisect_left(self.starts, at)
        if index < len(self.starts) and self.starts[index] == at:
            return index
        if at >= self.high:
            return len(self.starts)
        left = self.cells[index - 1]
        self.starts.insert(index, at)
        self.cells.insert(index, _Cell(left.high, left.write, dict(left.reads)))
        left.high = at
        return index


class Shadow:
    """The history of all memory that the device can reach."""

    def __init__(self) -> None:
        self._bases: list[int] = []
        self._stretches: dict[int, _Stretch] = {}
        self._latest = _NOWHERE  # looked up last

    def add(self, low: int, size: int) -> None:
        """Memory that the runtime allocated or registered; its bytes have no history."""
        self.remove(low)
        insort(self._bases, low)
        self._stretches[low] = _Stretch(low, low + size)

    def remove(self, low: int) -> None:
        """Memory that is no more: what was known of it is forgotten."""
        if self._stretches.pop(low, None) is not None:
            self._bases.remove(low)
            self._latest = _NOWHERE

    def is_known(self, address: int) -> bool:
        """Whether the address lies in memory that was added."""
        return self._find(address) is not None

    def cells(self) -> int:
        """How many ranges are kept: what the shadow costs."""
        return sum(len(stretch.cells) for stretch in self._stretches.values())

    def read(self, low: int, high: int, access: Access, clock: Clock) -> Sequence[Race]:
        """Bytes [low, high) are read. clock: what the lane of the access knows."""
        stretch = self._latest
        if not stretch.low <= low < stretch.high:
            stretch = self._find(low) or _NOWHERE
        starts = stretch.starts
        index = bisect_right(starts, low) - 1
        if index >= 0 and starts[index] == low and stretch.cells[index].high == high:
            cell = stretch.cells[index]  # the same bytes as the last time, as in every loop
            cell.reads[access.lane] = access
            write = cell.write
            if write is None or not _is_unordered(write, access, clock):
                return ()
            return (Race(write, True, low, high),)
        races: list[Race] = []
        for start, cell in _touched(stretch, low, high):
            write = cell.write
            if write is not None and _is_unordered(write, access, clock):
                races.append(Race(write, True, start, cell.high))
            cell.reads[access.lane] = access
        return races

    def write(self, low: int, high: int, access: Access, clock: Clock) -> Sequence[Race]:
        """Bytes [low, high) are written. clock: what the lane of the access knows."""
        stretch = self._latest
        if not stretch.low <= low < stretch.high:
            stretch = self._find(low) or _NOWHERE
        starts = stretch.starts
        index = bisect_right(starts, low) - 1
        if index >= 0 and starts[index] == low and stretch.cells[index].high == high:
            cell = stretch.cells[index]
            races = _races_with_write(low, cell, access, clock)
            cell.write = access
            cell.reads = {}
            return races
        races = []
        for start, cell in _touched(stretch, low, high):
            races += _races_with_write(start, cell, access, clock)
        if stretch is not _NOWHERE:
            _unite(stretch, low, min(high, stretch.high), access)
        return races

    def _find(self, address: int) -> _Stretch | None:
        index = bisect_right(self._bases, address) - 1
        if index < 0:
            return None
        stretch = self._stretches[self._bases[index]]
        if address >= stretch.high:
            return None
        self._latest = stretch
        return stretch


_NOWHERE = _Stretch(0, 0)


def _races_with_write(low: int, cell: _Cell, access: Access, clock: Clock) -> list[Race]:
    races: list[Race] = []
    write = cell.write
    if write is not None and _is_unordered(write, access, clock):
        races.append(Race(write, True, low, cell.high))
    for read in cell.reads.values():
        if _is_unordered(read, access, clock):
            races.append(Race(read, False, low, cell.high))
    return races


def _touched(stretch: _Stretch, low: int, high: int) -> Iterator[tuple[int, _Cell]]:
    """Cells of exactly the bytes [low, high) of a stretch, as (start, cell)."""
    if stretch is _NOWHERE:
        return iter(())
    first = stretch.cut(low)
    last = stretch.cut(min(high, stretch.high))
    return zip(stretch.starts[first:last], stretch.cells[first:last], strict=True)


def _unite(stretch: _Stretch, low: int, high: int, access: Access) -> None:
    """After a write all its bytes have one history."""
    first = stretch.cut(low)
    last = stretch.cut(high)
    stretch.starts[first:last] = [low]
    stretch.cells[first:last] = [_Cell(high, access, {})]


def _is_unordered(earlier: Access, access: Access, clock: Clock) -> bool:
    lane = earlier.lane
    if lane == access.lane:
        return False
    return lane >= len(clock) or clock[lane] < earlier.number
