"""Who touched which bytes last: one map from address ranges to accesses per stretch of memory.

After FastTrack (Flanagan and Freund 2009): per range the last write, and the last read of each lane
since. Identity is by address, so memory that an allocator splits, joins or hands out again keeps
its history: use again without an order is a race like any other. The map itself is the
order's (`interface.Order`).
"""

from __future__ import annotations

import msgspec

from racegate.order.interface import Order, Ranges, Stack


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
    stack: Stack


class MemoryShadow:
    """The history of all memory that the device can reach."""

    def __init__(self, order: Order) -> None:
        self._order = order

    def add(self, low: int, size: int, *, is_watched: bool = False) -> None:
        """Memory that the runtime allocated or registered; its bytes have no history. is_watched:
        the recorder is to tell of accesses to it.
        """
        self._order.add_memory(low, size, is_watched)

    def remove(self, low: int) -> None:
        """Memory that is no more: what was known of it is forgotten."""
        self._order.remove_memory(low)

    def is_known(self, address: int) -> bool:
        """Whether the address lies in memory that was added."""
        return self._order.is_memory(address)

    def unwritten(self, low: int, high: int, since: int) -> Ranges:
        """Those of the bytes that nothing has written since an event; of no memory none."""
        return self._order.unwritten(low, high, since)

    def cells(self) -> int:
        """How many ranges are kept: what the shadow costs."""
        return self._order.count_cells()
