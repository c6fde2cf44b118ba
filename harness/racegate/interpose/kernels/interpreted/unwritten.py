"""Loads of memory that nothing has written, and whether what a launch stores depends on them.

An allocator gives memory as it is. Who loads it and does not use what it loads (a mask that comes
later, padding that nobody looks at) does nothing wrong, so a load alone says nothing: the launch is
run once more with other bytes there, and what it stores is compared. Values that are only handed on
may be padding, so a finding is no more than this: where a launch stores, or whether it stays in its
memory, depends on those bytes; an atomic operation counts on from them; or it counts on from them
in a tensor of which nothing at all was written.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from racegate.history.finding import Frame
from racegate.interpose.kernels.interpreted.accesses import (
    LaunchRace,
    MissingEdge,
    ProgramAccess,
    ranges_of,
)
from racegate.order.memory import MemoryShadow
from racegate.order.ranges import Ranges, merged

LINES_MAX = 4  # of a launch, that are tried each by itself
# 96, which every type of float has exactly, and another value for memory that holds that already.
_FLOATS = {
    "fp64": (b"\0\0\0\0\0\0\x58\x40", b"\0\0\0\0\0\0\x48\x40"),
    "fp32": (b"\0\0\xc0\x42", b"\0\0\x40\x42"),
    "bf16": (b"\xc0\x42", b"\x40\x42"),
    "fp16": (b"\0\x56", b"\0\x52"),
}


class Owners(Protocol):
    """Who knows which allocations hold bytes."""

    def within(self, low: int, high: int) -> list[tuple[int, int, int]]:
        """(first byte, one past the last, number of the event before it) of each whose bytes are
        known from its beginning.
        """
        ...


class UnwrittenMemory(NamedTuple):
    """Of what a launch was given. bytes: that nothing has written; whole: the allocations among
    them of which nothing was written at all
    """

    bytes: Ranges = ()
    whole: Ranges = ()


class UnwrittenAccess(NamedTuple):
    """A load, or an atomic operation, of such bytes. touch: with the elements that have them alone;
    type_name: of an element, as the language calls it
    """

    touch: ProgramAccess
    type_name: str


class StoredValues(NamedTuple):
    """What a launch left in memory. contents: of each of the ranges; is_ended: it left its memory,
    or waited for ever
    """

    ranges: Ranges
    contents: tuple[bytes, ...]
    is_ended: bool = False

    def at(self, addresses: NDArray[np.uint64], size: int) -> list[bytes]:
        """The elements at addresses, all of which it has."""
        found = []
        for address in addresses.tolist():
            at = bisect_right(self.ranges, address, key=itemgetter(0)) - 1
            offset = address - self.ranges[at][0]
            found.append(self.contents[at][offset : offset + size])
        return found


def unwritten_in(memory: Ranges, owners: Owners, shadow: MemoryShadow) -> UnwrittenMemory:
    """What nothing has written of the memory that a launch was given."""
    known: list[tuple[int, int]] = []
    whole: list[tuple[int, int]] = []
    for low, high in memory:
        for first, end, since in owners.within(low, high):
            found = shadow.unwritten(first, end, since)
            known += [(max(low, one), min(high, other)) for one, other in found]
            whole += [(first, end)] if found == ((first, end),) else []
    return UnwrittenMemory(merged(known), merged(whole))


def without(memory: Ranges, holes: Ranges) -> Ranges:
    """The bytes of memory that are not in the holes."""
    found = []
    for low, high in memory:
        for first, end in holes:
            if first >= high:
                break
            if end > low:
                found.append((low, first))
                low = end
        found.append((low, high))
    return merged(found)


def by_line(
    loads: Sequence[UnwrittenAccess], touches: Sequence[ProgramAccess]
) -> dict[Frame, list[UnwrittenAccess]]:
    """By line of the kernel those loads that come before every store of the launch to the same
    elements. touches: of the launch
    """
    found: dict[Frame, list[UnwrittenAccess]] = {}
    if not loads:
        return found
    starts = np.unique(np.concatenate([load.touch.addresses for load in loads]))
    first_at = np.full(starts.size, len(touches) + 1)
    for touch in touches:
        if touch.is_write and touch.addresses.size:
            low = np.searchsorted(starts, touch.addresses)
            high = np.searchsorted(starts, touch.addresses + np.uint64(touch.size))
            for step in range(int((high - low).max())):
                stored = low[high - low > step] + step
                first_at[stored] = np.minimum(first_at[stored], touch.at)
    for load in loads:
        touch = load.touch
        left = first_at[np.searchsorted(starts, touch.addresses)] >= touch.at
        if left.any():
            own = touch._replace(addresses=touch.addresses[left], values=None, lanes=None)
            found.setdefault(touch.place, []).append(load._replace(touch=own))
    return found


def other_bytes(loads: Sequence[UnwrittenAccess]) -> Iterator[tuple[int, bytes]]:
    """(address, bytes) of what is to be there instead: whole elements, each of a plain value."""
    for load in loads:
        touch = load.touch
        for low, high in ranges_of([(touch.addresses, touch.size, False)], is_write=False):
            one, other = _FLOATS.get(
                load.type_name, (b"\1" + bytes(touch.size - 1), b"\2" + bytes(touch.size - 1))
            )
            filled = one * ((high - low) // touch.size)
            is_there = ctypes.string_at(low, len(filled)) == filled
            yield low, other * ((high - low) // touch.size) if is_there else filled


class LineTried(NamedTuple):
    """What a launch stored with other bytes where one of its lines loads them, and what it did as
    they were. before: what was there, by address; filled: what was put there
    """

    loads: Sequence[UnwrittenAccess]
    before: StoredValues
    filled: StoredValues
    plain: StoredValues
    varied: StoredValues


def depends(tried: LineTried) -> bool:
    """Whether anything that was stored is another."""
    return tried.varied.is_ended or tried.plain != tried.varied


def race_of_line(
    tried: LineTried, touches: Sequence[ProgramAccess], unwritten: UnwrittenMemory
) -> LaunchRace | None:
    """What is wrong with a load, if it is sure. touches: of the launch; unwritten: before it"""
    first = tried.loads[0].touch
    if tried.varied.is_ended or _stores_elsewhere(tried, unwritten.bytes):
        stores = [touch for touch in touches if touch.is_write and touch.at > first.at]
        return _race(first, stores[0] if stores else first)
    for load in tried.loads:
        touch = load.touch
        if not (touch.is_atomic or touch.is_write or _is_within(touch, unwritten.whole)):
            continue
        for store in [touch] if touch.is_write else _stores_behind(touch, touches):
            both = np.intersect1d(touch.addresses, store.addresses)
            if both.size and _counts_on(tried, both, touch.size):
                return _race(touch, store)
    return None


def _stores_elsewhere(tried: LineTried, unwritten: Ranges) -> bool:
    """Whether it stores at other places. What is only stored or left out where nothing had written
    may be padding too: of rows that are not looked at, elements that a mask picks by their value.
    """
    left_out = without(tried.plain.ranges, tried.varied.ranges)
    added = without(tried.varied.ranges, tried.plain.ranges)
    return bool(left_out and added) or bool(without((*left_out, *added), unwritten))


def _race(first: ProgramAccess, second: ProgramAccess) -> LaunchRace:
    low = int(first.addresses.min())
    return LaunchRace(first, second, low, low + first.size, MissingEdge.UNWRITTEN)


def _is_within(touch: ProgramAccess, whole: Ranges) -> bool:
    low = int(touch.addresses[0])
    at = bisect_right(whole, low, key=itemgetter(0)) - 1
    return at >= 0 and low < whole[at][1]


def _stores_behind(
    load: ProgramAccess, touches: Sequence[ProgramAccess]
) -> Iterator[ProgramAccess]:
    """What the same program stores later, with elements of the same size."""
    for touch in touches[load.at + 1 :]:
        if touch.is_write and touch.program == load.program and touch.size == load.size:
            yield touch


def _counts_on(tried: LineTried, elements: NDArray[np.uint64], size: int) -> bool:
    """Whether an element became another because of what it was, and was not only put back."""
    was, fill = tried.before.at(elements, size), tried.filled.at(elements, size)
    plain, varied = tried.plain.at(elements, size), tried.varied.at(elements, size)
    return any(
        one != other and (one != old or other != new)
        for old, new, one, other in zip(was, fill, plain, varied, strict=True)
    )


def as_they_are(ranges: Ranges) -> StoredValues:
    """What memory holds."""
    return StoredValues(ranges, tuple(ctypes.string_at(low, high - low) for low, high in ranges))
