"""Zeroing of blocks of a pool, so that a new owner does not find what the last one left.

Serves states, windows and paged caches alike: of a pool only its first dimension matters.
"""

from __future__ import annotations

from racegate_kernels._triton import tl, triton
from racegate_kernels.launch import assert_dense, block_of, cdiv
from racegate_kernels.numerics import Array


def zero_blocks_eager(pool: Array, blocks: Array) -> None:
    """Zeroes the listed blocks; an entry that is null or outside the pool zeroes nothing.

    pool: [B, ...] uint32, int32 or float32, written at the listed blocks
    blocks: [n] int32, read; a block may stand twice
    """
    pool[blocks[(blocks > 0) & (blocks < len(pool))]] = 0


def zero_blocks_triton(pool: Array, blocks: Array) -> None:
    """The same on torch tensors."""
    assert_dense(pool[0], blocks)
    size = pool[0].numel()
    block = block_of(size)
    _zero_blocks_kernel[(len(blocks), cdiv(size, block))](
        pool, blocks, pool.stride(0), len(pool), SIZE=size, BLOCK=block
    )


@triton.jit
def _zero_blocks_kernel(
    p_pool,  # [B, ...], written at the listed blocks
    p_blocks,  # [n] int32, read
    stride_pool,
    pool_blocks,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One program per listed block and part of it."""
    i_block = tl.load(p_blocks + tl.program_id(0)).to(tl.int64)
    o = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    m = tl.where((i_block > 0) & (i_block < pool_blocks), o < SIZE, False)
    tl.store(p_pool + i_block * stride_pool + o, 0, mask=m)
