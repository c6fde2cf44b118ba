"""Small Triton kernels whose programs race, and twins whose programs do not; all are launched once.

The names say which: of a kernel `x_right` nothing may be found, of `x_wrong` something has to be.
"""

from __future__ import annotations

import triton
import triton.language as tl
from launched import counter, launch_all, launched, numbers, zeros


@launched(numbers, zeros)
@triton.jit
def shift_right(x, y, N: tl.constexpr, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.load(x + at + 1, mask=at + 1 < N, other=0))


@launched(numbers, zeros)
@triton.jit
def shift_wrong(x, y, N: tl.constexpr, B: tl.constexpr):
    """In place: the neighbour's first element may be written already."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + at, tl.load(x + at + 1, mask=at + 1 < N, other=0))


@launched(numbers, zeros)
@triton.jit
def sum_right(x, y, N: tl.constexpr, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(y, tl.sum(tl.load(x + at)))


@launched(numbers, zeros)
@triton.jit
def sum_wrong(x, y, N: tl.constexpr, B: tl.constexpr):
    """A load, an addition and a store are not one operation."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y, tl.load(y) + tl.sum(tl.load(x + at)))


@launched(numbers, zeros)
@triton.jit
def tiles_right(x, y, N: tl.constexpr, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.program_id(0) * 1.0)


@launched(numbers, zeros)
@triton.jit
def tiles_wrong(x, y, N: tl.constexpr, B: tl.constexpr):
    """Each tile begins one element too early."""
    at = tl.program_id(0) * (B - 1) + tl.arange(0, B)
    tl.store(y + at, tl.program_id(0) * 1.0)


@launched(numbers, zeros)
@triton.jit
def flag_right(x, y, N: tl.constexpr, B: tl.constexpr):
    """All write the same value."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y, tl.sum(tl.load(x + at)) * 0 + 1)


@launched(numbers, zeros)
@triton.jit
def flag_wrong(x, y, N: tl.constexpr, B: tl.constexpr):
    tl.store(y, tl.program_id(0) * 1.0)


@launched(numbers, zeros, counter)
@triton.jit
def last_right(x, y, count, N: tl.constexpr, B: tl.constexpr):
    """Who counts last sums up."""
    me = tl.program_id(0)
    tl.store(y + me, tl.sum(tl.load(x + me * B + tl.arange(0, B))))
    if tl.atomic_add(count, 1) == N // B - 1:
        tl.store(x, tl.sum(tl.load(y + tl.arange(0, 4))))


@launched(numbers, zeros, counter)
@triton.jit
def last_wrong(x, y, count, N: tl.constexpr, B: tl.constexpr):
    """The last program in the grid is not the last to run."""
    me = tl.program_id(0)
    tl.store(y + me, tl.sum(tl.load(x + me * B + tl.arange(0, B))))
    if me == N // B - 1:
        tl.store(x, tl.sum(tl.load(y + tl.arange(0, 4))))


@launched(numbers, zeros, counter)
@triton.jit
def slot_right(x, y, count, N: tl.constexpr, B: tl.constexpr):
    slot = tl.atomic_add(count, 1)
    tl.store(y + slot, tl.program_id(0) * 1.0)


@launched(numbers, zeros, counter)
@triton.jit
def slot_wrong(x, y, count, N: tl.constexpr, B: tl.constexpr):
    """The slot is written before it is taken."""
    tl.store(y, tl.program_id(0) * 1.0)
    tl.atomic_add(count, 1)


@launched(numbers, zeros)
@triton.jit
def rows_right(x, y, N: tl.constexpr, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    row = tl.load(x + at)
    tl.store(x + at, row - tl.max(row))
    tl.store(x + at, tl.load(x + at) * 2)


@launched(numbers, zeros)
@triton.jit
def rows_wrong(x, y, N: tl.constexpr, B: tl.constexpr):
    """Two programs have one row."""
    at = (tl.program_id(0) // 2) * B + tl.arange(0, B)
    row = tl.load(x + at)
    tl.store(x + at, row - tl.max(row))


@launched(numbers, zeros)
@triton.jit
def tail_right(x, y, N: tl.constexpr, B: tl.constexpr):
    """Rows of 10 in blocks of 16."""
    lane = tl.arange(0, B)
    at = tl.program_id(0) * 10 + lane
    tl.store(y + at, tl.load(x + at, mask=lane < 10) * 2, mask=lane < 10)


@launched(numbers, zeros)
@triton.jit
def tail_wrong(x, y, N: tl.constexpr, B: tl.constexpr):
    """The store has no mask."""
    lane = tl.arange(0, B)
    at = tl.program_id(0) * 10 + lane
    tl.store(y + at, tl.load(x + at, mask=lane < 10, other=0) * 2)


@launched(numbers, zeros)
@triton.jit
def strided_right(x, y, N: tl.constexpr, B: tl.constexpr):
    at = tl.program_id(0) + tl.arange(0, B) * (N // B)
    tl.store(y + at, tl.load(x + at) + tl.program_id(0))


@launched(numbers, zeros)
@triton.jit
def strided_wrong(x, y, N: tl.constexpr, B: tl.constexpr):
    """The stride is one short."""
    at = tl.program_id(0) + tl.arange(0, B) * (N // B - 1)
    tl.store(y + at, tl.load(x + at) + tl.program_id(0))


@launched(numbers, zeros)
@triton.jit
def mixed_right(x, y, N: tl.constexpr, B: tl.constexpr):
    tl.atomic_max(y, tl.max(tl.load(x + tl.program_id(0) * B + tl.arange(0, B))))


@launched(numbers, zeros)
@triton.jit
def mixed_wrong(x, y, N: tl.constexpr, B: tl.constexpr):
    """The first program clears what the others add to."""
    if tl.program_id(0) == 0:
        tl.store(y, -1.0)
    else:
        tl.atomic_max(y, tl.max(tl.load(x + tl.program_id(0) * B + tl.arange(0, B))))


@launched(numbers, zeros)
@triton.jit
def table_right(x, y, N: tl.constexpr, B: tl.constexpr):
    """All read what none writes."""
    at = tl.arange(0, B)
    tl.store(y + tl.program_id(0) * B + at, tl.load(x + at))


@launched(numbers, zeros)
@triton.jit
def table_wrong(x, y, N: tl.constexpr, B: tl.constexpr):
    """All read what the first one writes."""
    at = tl.arange(0, B)
    tl.store(x + tl.program_id(0) * B + at, tl.load(x + at) + 1)


if __name__ == "__main__":
    launch_all()
