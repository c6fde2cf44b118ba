"""Which accesses to one memory nothing orders: the definition, in Python, over masks of rows.

A memory is a storage whose rows are numbered; an access touches the rows of a mask, reading or
writing. Two accesses to a common row are in conflict if one of them writes and nothing orders them.
After FastTrack (Flanagan and Freund 2009) every row remembers its last write and, by lane, the last
read since: an access that a later one of its lane covers is explained by that. Lanes are few, so
whole clocks are compared. `native/order.c` does the same where the rows are bytes, in ranges.

Rows that were last touched together are kept as one mask, and found by row where there are many
masks: an access costs what it touches, not what was touched before.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Generic, TypeVar

from racegate.history.trace import rows_of
from racegate.order.clocks import knows

# So many accesses are looked through one by one before those of few rows are indexed by row.
LISTED_MAX = 32
INDEXED_ROWS_MAX = 64

Event = TypeVar("Event")


class RowTouch(Generic[Event]):
    """An access of a lane to a memory.

    event: what made it; number: of what its lane did; place: among the accesses to its memory
    rows: of those that it touched, the ones that no later access has covered
    also: another lane and a number of what it did: who knows that knows this too
    """

    __slots__ = ("also", "event", "lane", "number", "place", "rows")

    is_write = False

    def __init__(self, event: Event, lane: int, number: int, rows: int, place: int) -> None:
        self.event = event
        self.lane = lane
        self.number = number
        self.rows = rows
        self.place = place
        self.also: tuple[int, int] | None = None

    def is_known(self, clock: Sequence[int]) -> bool:
        """Whether the clock covers it."""
        return knows(clock, self.lane, self.number) or (
            self.also is not None and knows(clock, *self.also)
        )


class _Write(RowTouch[Event]):
    __slots__ = ()

    is_write = True


class _Last(Generic[Event]):
    """Who touched the rows of a memory last.

    listed: what is looked through one by one; indexed: the others, each of few rows
    by_row: row -> the access that was indexed there last; its rows say whether it is still there
    """

    __slots__ = ("by_row", "indexed", "listed", "listed_max")

    def __init__(self) -> None:
        self.listed: list[RowTouch[Event]] = []
        self.indexed: dict[RowTouch[Event], None] = {}
        self.by_row: dict[int, RowTouch[Event]] = {}
        self.listed_max = LISTED_MAX

    def over(self, rows: int) -> list[RowTouch[Event]]:
        """Those that touched any of these rows last."""
        found = [touch for touch in self.listed if touch.rows & rows]
        if self.indexed:
            found += self._indexed_over(rows)
        return found

    def _indexed_over(self, rows: int) -> list[RowTouch[Event]]:
        # To find a row costs several times what it costs to look at one access.
        if 8 * rows.bit_count() >= len(self.indexed):
            return [touch for touch in self.indexed if touch.rows & rows]
        found = {self.by_row[row]: None for row in rows_of(rows) if row in self.by_row}
        return [touch for touch in found if touch.rows & rows]

    def cover(self, found: list[RowTouch[Event]], rows: int) -> None:
        """A later access stands for those that were found over its rows."""
        is_over = False
        for touch in found:
            touch.rows &= ~rows
            is_over = is_over or not touch.rows
        if is_over:
            self.listed = [touch for touch in self.listed if touch.rows]
            if self.indexed:
                for touch in found:
                    if not touch.rows:
                        self.indexed.pop(touch, None)

    def add(self, touch: RowTouch[Event]) -> None:
        """Touches its rows last; who did before is covered."""
        self.listed.append(touch)
        if len(self.listed) > self.listed_max:
            self._index()

    def _index(self) -> None:
        """Those of few rows go to the index; the others are as many as the memory has room for."""
        for touch in self.listed:
            if touch.rows.bit_count() <= INDEXED_ROWS_MAX:
                self.indexed[touch] = None
                for row in rows_of(touch.rows):
                    self.by_row[row] = touch
        self.listed = [touch for touch in self.listed if touch not in self.indexed]
        self.listed_max = max(LISTED_MAX, 2 * len(self.listed))


class Shadow(Generic[Event]):
    """What is remembered of one memory: the last writes, and the reads since by lane."""

    __slots__ = ("_count", "_reads", "_writes")

    def __init__(self) -> None:
        self._count = 0
        self._writes: _Last[Event] = _Last()
        self._reads: dict[int, _Last[Event]] = {}

    def cells(self) -> int:
        """How many accesses are remembered: what the shadow costs."""
        lasts = (self._writes, *self._reads.values())
        return sum(len(last.listed) + len(last.indexed) for last in lasts)

    def writes_over(self, rows: int) -> list[RowTouch[Event]]:
        """The last writes of any of these rows."""
        return self._writes.over(rows)

    def read(
        self, event: Event, lane: int, number: int, clock: Sequence[int], rows: int
    ) -> list[tuple[RowTouch[Event], int]]:
        """A lane reads rows. number: of what it did; clock: what it knows, of every lane. Returns
        the accesses remembered that this one is in conflict with, each with the rows that both
        touch, the oldest first.
        """
        self._count += 1
        touch = RowTouch(event, lane, number, rows, self._count)
        conflicts = _unordered(self._writes.over(rows), lane, clock, rows)
        last = self._reads.get(lane)
        if last is None:
            last = self._reads[lane] = _Last()
        # A later read of the same lane stands for an earlier one: what is ordered after it is
        # after both.
        last.cover(last.over(rows), rows)
        last.add(touch)
        return conflicts

    def write(
        self, event: Event, lane: int, number: int, clock: Sequence[int], rows: int
    ) -> list[tuple[RowTouch[Event], int]]:
        """A lane writes rows: likewise, writes before reads."""
        self._count += 1
        touch = _Write(event, lane, number, rows, self._count)
        writes = self._writes.over(rows)
        reads = [(last, last.over(rows)) for last in self._reads.values()]
        found_reads = [read for _, found in reads for read in found]
        conflicts = _unordered(writes, lane, clock, rows)
        conflicts += _unordered(found_reads, lane, clock, rows)
        self._writes.cover(writes, rows)
        for last, found in reads:
            last.cover(found, rows)
        self._writes.add(touch)
        return conflicts

    def adopt(self, lane: int, number: int, clock: Sequence[int], rows: int) -> None:
        """What the clock knows of these rows is known to all who know this number of a lane."""
        for last in (self._writes, *self._reads.values()):
            for touch in last.over(rows):
                if touch.is_known(clock):
                    common = touch.rows & rows
                    last.cover([touch], common)
                    own = type(touch)(touch.event, touch.lane, touch.number, common, touch.place)
                    own.also = (lane, number)
                    last.add(own)


def _unordered(
    earlier: list[RowTouch[Event]], lane: int, clock: Sequence[int], rows: int
) -> list[tuple[RowTouch[Event], int]]:
    """Those of other lanes that the clock does not know, the oldest first, with common rows."""
    found = [touch for touch in earlier if touch.lane != lane and not touch.is_known(clock)]
    if not found:
        return []
    found.sort(key=attrgetter("place"))
    return [(touch, touch.rows & rows) for touch in found]
