"""The n-gram drafter: what followed the last token where it stood before; nothing if it did not.

DEFINITION section 4.
"""

from __future__ import annotations

import numpy as np

from racegate_kernels._triton import tl, triton
from racegate_kernels.launch import assert_dense, assert_row_major, block_of
from racegate_kernels.numerics import Array
from racegate_kernels.paged_attention import gather_entries
from racegate_kernels.poison import T_POISON_I32, load_or_poison
from racegate_kernels.rows import gather_eager

BLOCK_J = 128


def ngram_draft_eager(
    positions: Array, last_index: Array, block_table: Array, cache: Array, drafts: Array
) -> None:
    """Up to K drafts per row, then -1.

    positions: [T] int32, read; last_index: [R] int32, read; block_table: [R, M] int32, read
    cache: [B, S, 1] int32, read; the token behind each position
    drafts: [R, K] int32, written
    """
    place = gather_eager(positions, last_index)
    longest = block_table.shape[1] * cache.shape[1]
    has_place = (place >= 0) & (place < longest)
    last = np.where(has_place, place, 0)
    tokens = gather_entries(cache, block_table, int(last.max(initial=0)) + 1)[..., 0]
    index = np.arange(tokens.shape[1])
    each = np.arange(len(last))
    same = (tokens == tokens[each, last][:, None]) & (index < last[:, None])
    found = np.where(same & has_place[:, None], index, -1).max(axis=1)
    for i in range(drafts.shape[1]):
        behind = found + 1 + i
        has_draft = (found >= 0) & (behind <= last)
        drafts[:, i] = np.where(has_draft, tokens[each, np.where(has_draft, behind, 0)], -1)


def ngram_draft_triton(
    positions: Array, last_index: Array, block_table: Array, cache: Array, drafts: Array
) -> None:
    """The same on torch tensors."""
    assert_dense(positions, last_index, cache)
    assert_row_major(block_table, drafts)
    blocks, block_size, _ = cache.shape
    _ngram_draft_kernel[(len(last_index),)](
        positions,
        last_index,
        block_table,
        cache,
        drafts,
        block_table.stride(0),
        drafts.stride(0),
        len(positions),
        blocks,
        block_table.shape[1] * block_size,
        DRAFTS=drafts.shape[1],
        BLOCK_SIZE=block_size,
        BLOCK_J=BLOCK_J,
        BLOCK_K=block_of(drafts.shape[1]),
    )


@triton.jit(do_not_specialize=["tokens"])
def _ngram_draft_kernel(
    p_positions,  # [T] int32, read
    p_last_index,  # [R] int32, read
    p_block_table,  # [R, M] int32, read
    p_cache,  # [B, S, 1] int32, read
    p_drafts,  # [R, K] int32, written
    stride_table,
    stride_drafts,
    tokens,
    blocks,
    context_max,  # M * S
    DRAFTS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    BLOCK_J: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    i_row = tl.program_id(0).to(tl.int64)
    place = load_or_poison(p_positions, tl.load(p_last_index + i_row), tokens)
    has_place = (place >= 0) & (place < context_max)
    place = tl.where(has_place, place, 0)
    p_table_row = p_block_table + i_row * stride_table
    last = tl.max(_tokens_at(p_table_row, p_cache, place + tl.arange(0, 1), blocks, BLOCK_SIZE), 0)
    found = place * 0 - 1
    i_first = place * 0
    while i_first < place:
        o_j = i_first + tl.arange(0, BLOCK_J)
        o_at = tl.minimum(o_j, place)
        b_same = _tokens_at(p_table_row, p_cache, o_at, blocks, BLOCK_SIZE) == last
        found = tl.maximum(found, tl.max(tl.where(b_same & (o_j < place), o_j, -1), 0))
        i_first += BLOCK_J
    found = tl.where(has_place, found, -1)
    o_k = tl.arange(0, BLOCK_K)
    o_behind = found + 1 + o_k
    b_drafts = _tokens_at(
        p_table_row, p_cache, tl.minimum(tl.maximum(o_behind, 0), place), blocks, BLOCK_SIZE
    )
    b_drafts = tl.where((found >= 0) & (o_behind <= place), b_drafts, -1)
    tl.store(p_drafts + i_row * stride_drafts + o_k, b_drafts, mask=o_k < DRAFTS)


@triton.jit
def _tokens_at(p_table_row, p_cache, o_j, blocks, BLOCK_SIZE: tl.constexpr):
    """The tokens behind positions of a row; poison where it has no block."""
    b_block = tl.load(p_table_row + o_j // BLOCK_SIZE).to(tl.int64)
    m_inside = (b_block > 0) & (b_block < blocks)
    return tl.load(
        p_cache + b_block * BLOCK_SIZE + o_j % BLOCK_SIZE, mask=m_inside, other=T_POISON_I32
    )
