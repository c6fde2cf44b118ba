"""Byte ranges of strided views, as sorted disjoint half-open pairs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from racegate.order.compiled import union
from racegate.order.interface import Ranges as Ranges

RUNS_MAX = 1 << 16  # a view of more runs is taken as a whole, and counted as coarse


def strided_ranges(
    address: int, shape: Sequence[int], strides: Sequence[int], itemsize: int
) -> Ranges:
    """Bytes of a strided view. address: of element 0; strides: in bytes, of any sign.

    A view of more than RUNS_MAX runs is its hull; `is_coarse` tells.
    """
    if 0 in shape:
        return ()
    first, run, outer = _runs(address, shape, strides, itemsize)
    count = 1
    for _, extent in outer:
        count *= extent
    if count > RUNS_MAX:
        return ((first, first + run + sum(step * (extent - 1) for step, extent in outer)),)
    starts = [first]
    for step, extent in outer:
        starts = [start + step * i for start in starts for i in range(extent)]
    if len(starts) == 1:
        return ((first, first + run),)
    return merged((start, start + run) for start in starts)


def is_coarse(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> bool:
    """Whether strided_ranges gives more than the view's own bytes."""
    if 0 in shape:
        return False
    count = 1
    for _, extent in _runs(0, shape, strides, itemsize)[2]:
        count *= extent
    return count > RUNS_MAX


def _runs(
    address: int, shape: Sequence[int], strides: Sequence[int], itemsize: int
) -> tuple[int, int, list[tuple[int, int]]]:
    """(lowest byte, bytes of one run, (step, extent) of the dimensions that repeat it)."""
    dims = []
    for extent, stride in zip(shape, strides, strict=True):
        if extent > 1 and stride:
            if stride < 0:
                address += stride * (extent - 1)
            dims.append((abs(stride), extent))
    dims.sort()
    run = itemsize
    while dims and dims[0][0] <= run:
        step, extent = dims.pop(0)
        run += step * (extent - 1)
    return address, run, dims[::-1]


def merged(pairs: Iterable[tuple[int, int]]) -> Ranges:
    """The union of any ranges: sorted, overlapping and touching ones joined, empty ones dropped."""
    return union(pairs if isinstance(pairs, list) else list(pairs))


def element_ranges(address: int, offsets: Iterable[int], itemsize: int) -> Ranges:
    """Bytes of single elements. offsets: in elements from address, in any order."""
    return merged(
        (address + offset * itemsize, address + (offset + 1) * itemsize) for offset in offsets
    )


def size_of(ranges: Ranges) -> int:
    """Bytes in the ranges."""
    return sum(high - low for low, high in ranges)
