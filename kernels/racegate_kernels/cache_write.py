"""Write of per-token entries to a paged cache by slot mapping."""

from __future__ import annotations

from racegate_kernels._triton import tl, triton
from racegate_kernels.launch import assert_dense, assert_row_major, block_of, cdiv
from racegate_kernels.numerics import Array

BLOCK_T = 16


def cache_write_eager(entries: Array, slot_mapping: Array, cache: Array) -> None:
    """Stores entry t at slot t; a slot outside the cache, or in its null block 0, stores nothing.

    So nor does a token behind the last row, whose slot is -1.

    entries: [T, E], read
    slot_mapping: [T] int32, read
    cache: [B, S, E] same dtype, written
    """
    blocks, size, width = cache.shape
    inside = (slot_mapping >= size) & (slot_mapping < blocks * size)
    cache.reshape(-1, width)[slot_mapping[inside]] = entries[inside]


def cache_write_triton(entries: Array, slot_mapping: Array, cache: Array) -> None:
    """The same on torch tensors; of two entries for one slot, either may stay."""
    assert_row_major(entries)
    assert_dense(slot_mapping, cache)
    tokens, width = entries.shape
    blocks, block_size, _ = cache.shape
    block_e = block_of(width, most=256)
    _cache_write_kernel[(cdiv(tokens, BLOCK_T), cdiv(width, block_e))](
        entries,
        slot_mapping,
        cache,
        entries.stride(0),
        tokens,
        block_size,
        blocks * block_size,
        WIDTH=width,
        BLOCK_T=BLOCK_T,
        BLOCK_E=block_e,
    )


@triton.jit(do_not_specialize=["tokens"])
def _cache_write_kernel(
    p_entries,  # [T, E], read
    p_slot_mapping,  # [T] int32, read
    p_cache,  # [B, S, E], written
    stride_entries,
    tokens,
    first_slot,  # the first behind the null block
    slots,
    WIDTH: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_E: tl.constexpr,
):
    o_t = tl.program_id(0).to(tl.int64) * BLOCK_T + tl.arange(0, BLOCK_T)
    o_e = (tl.program_id(1) * BLOCK_E + tl.arange(0, BLOCK_E))[None, :]
    b_slot = tl.load(p_slot_mapping + o_t, mask=o_t < tokens, other=-1).to(tl.int64)
    m = ((b_slot >= first_slot) & (b_slot < slots))[:, None] & (o_e < WIDTH)
    b_entries = tl.load(p_entries + o_t[:, None] * stride_entries + o_e, mask=m)
    tl.store(p_cache + b_slot[:, None] * WIDTH + o_e, b_entries, mask=m)
