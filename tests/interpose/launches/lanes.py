"""Small Triton kernels of one program whose lanes touch each other's elements, with a barrier
between and without.

The names say which: of a kernel `x_right` nothing may be found, of `x_wrong` something has to be.
"""

from __future__ import annotations

import triton
import triton.language as tl
from launched import WIDE, launch_all, launched, wide


@launched(wide, wide, block=WIDE)
@triton.jit
def reverse_right(x, y, N: tl.constexpr, B: tl.constexpr):
    lane = tl.arange(0, B)
    tl.store(y + lane, tl.load(x + lane) + 1)
    tl.debug_barrier()
    tl.store(x + lane, tl.load(y + B - 1 - lane))


@launched(wide, wide, block=WIDE)
@triton.jit
def reverse_wrong(x, y, N: tl.constexpr, B: tl.constexpr):
    """A lane reads what another one has stored."""
    lane = tl.arange(0, B)
    tl.store(y + lane, tl.load(x + lane) + 1)
    tl.store(x + lane, tl.load(y + B - 1 - lane))


@launched(wide, wide, block=WIDE)
@triton.jit
def mirror_right(x, y, N: tl.constexpr, B: tl.constexpr):
    lane = tl.arange(0, B)
    moved = tl.load(x + B - 1 - lane)
    tl.debug_barrier()
    tl.store(x + lane, moved)


@launched(wide, wide, block=WIDE)
@triton.jit
def mirror_wrong(x, y, N: tl.constexpr, B: tl.constexpr):
    """A lane may overwrite what another one has yet to read."""
    lane = tl.arange(0, B)
    tl.store(x + lane, tl.load(x + B - 1 - lane))


@launched(wide, wide, block=WIDE)
@triton.jit
def restore_right(x, y, N: tl.constexpr, B: tl.constexpr):
    """A row is masked out, and a few of its elements come back."""
    lane = tl.arange(0, B)
    few = B - 64 + tl.arange(0, 64)
    kept = tl.load(x + few)
    tl.debug_barrier()
    tl.store(x + lane, float("-inf"))
    tl.debug_barrier()
    tl.store(x + few, kept)


@launched(wide, wide, block=WIDE)
@triton.jit
def restore_wrong(x, y, N: tl.constexpr, B: tl.constexpr):
    """The mask may come behind what is to stay."""
    lane = tl.arange(0, B)
    few = B - 64 + tl.arange(0, 64)
    kept = tl.load(x + few)
    tl.debug_barrier()
    tl.store(x + lane, float("-inf"))
    tl.store(x + few, kept)


@launched(wide, wide, block=WIDE)
@triton.jit
def same_right(x, y, N: tl.constexpr, B: tl.constexpr):
    """Each lane goes on with its own element."""
    lane = tl.arange(0, B)
    tl.store(x + lane, tl.load(x + lane) * 2)
    tl.store(x + lane, tl.load(x + lane) + 1)


@launched(wide, wide, block=WIDE)
@triton.jit
def same_wrong(x, y, N: tl.constexpr, B: tl.constexpr):
    """A tile is written from the top and read from the bottom."""
    row, column = tl.arange(0, 32)[:, None], tl.arange(0, 32)[None, :]
    tl.store(y + row * 32 + column, tl.load(x + row * 32 + column))
    tl.store(x + row * 32 + column, tl.load(y + (31 - row) * 32 + column))


@launched(wide, wide, block=WIDE)
@triton.jit
def scatter_right(x, y, N: tl.constexpr, B: tl.constexpr):
    """Two lanes store one value to one element."""
    lane = tl.arange(0, B)
    tl.store(y + lane // 2, lane // 2)


@launched(wide, wide, block=WIDE)
@triton.jit
def scatter_wrong(x, y, N: tl.constexpr, B: tl.constexpr):
    """Two lanes store two values to one element."""
    lane = tl.arange(0, B)
    tl.store(y + lane // 2, lane)


@launched(wide, wide, block=WIDE)
@triton.jit
def loop_right(x, y, N: tl.constexpr, B: tl.constexpr):
    lane = tl.arange(0, B)
    for step in range(3):
        tl.store(x + (step + 1) * B + lane, tl.load(x + step * B + B - 1 - lane))
        tl.debug_barrier()


@launched(wide, wide, block=WIDE)
@triton.jit
def loop_wrong(x, y, N: tl.constexpr, B: tl.constexpr):
    """The next turn reads what other lanes stored in the last."""
    lane = tl.arange(0, B)
    for step in range(3):
        tl.store(x + (step + 1) * B + lane, tl.load(x + step * B + B - 1 - lane))


if __name__ == "__main__":
    launch_all()
