"""Attention over a paged cache: unnormalised linear in exact, softmax in float.

DEFINITION section 2.
"""

from __future__ import annotations

import numpy as np

from racegate_kernels._triton import tl, triton
from racegate_kernels.launch import (
    BLOCK_ELEMENTS,
    assert_dense,
    assert_row_major,
    is_exact_tensor,
    power_of_two,
)
from racegate_kernels.numerics import Array, is_exact, widen
from racegate_kernels.poison import poison_of, poisoned
from racegate_kernels.rows import row_of_token, token_rows, zeros_behind


def paged_attention_eager(
    q: Array,
    cache: Array,
    block_table: Array,
    query_start: Array,
    seq_lens: Array,
    positions: Array,
) -> Array:
    """Causal attention of every token over its own request's cache entries.

    q: [T, H, P] uint32 or float32, read; position-encoded
    cache: [B, S, 2 * G * P] same dtype, read; encoded keys, then values; each of G shared by
        consecutive heads
    block_table: [R, M] int32, read; a null block or one outside the pool reads poison
    query_start: [R + 1]; seq_lens: [R]; positions: [T] int32, read
    returns [T, H, P]; 0 for tokens behind the last row
    """
    used = int(query_start[-1])
    if used < len(q):
        row = (block_table, query_start, seq_lens)
        return zeros_behind(paged_attention_eager(q[:used], cache, *row, positions[:used]), len(q))
    tokens, heads, size = q.shape
    context = min(int(seq_lens.max(initial=0)), block_table.shape[1] * cache.shape[1])
    if tokens == 0 or context <= 0:
        return np.zeros_like(q)
    entries = gather_entries(cache, block_table, context)
    kept = entries.reshape(-1, context, 2, entries.shape[2] // (2 * size), size)
    if kept.shape[3] < heads:
        kept = kept.repeat(heads // kept.shape[3], axis=3)
    keys, values = kept[:, :, 0], kept[:, :, 1]
    row_of, _ = token_rows(query_start)
    place = np.arange(context)
    seen = (place <= positions[:, None]) & (place < seq_lens[row_of, None])
    scores = (q[:, None] * keys[row_of]).sum(axis=-1, dtype=q.dtype)
    weights = _weights(scores, seen, size=size)
    # Unseen entries may be poison (NaN), which a weight of zero would not hide.
    shown = np.where(seen[:, :, None, None], values[row_of], np.zeros((), q.dtype))
    return (weights[..., None] * shown).sum(axis=1, dtype=q.dtype)


def gather_entries(cache: Array, block_table: Array, context: int) -> Array:
    """[R, context, E]: the cache entries of positions 0 .. context - 1 of every row.

    cache: [B, S, E] uint32 or float32; block_table: [R, M] int32
    """
    block_size = cache.shape[1]
    place = np.arange(context)
    blocks = block_table[:, place // block_size]
    inside = (blocks > 0) & (blocks < len(cache))
    entries = cache[np.where(inside, blocks, 0), place % block_size]
    if not inside.all():
        entries[~inside] = poison_of(cache.dtype)
    return entries


def _weights(scores: Array, seen: Array, *, size: int) -> Array:
    """[T, context, H]: what each value counts; 0 where it is not seen.

    scores: [T, context, H] uint32 or float32; seen: [T, context] bool
    """
    if is_exact(scores):
        return np.where(seen[..., None], scores, np.uint32(0))
    scores = np.where(seen[..., None], scores / np.float32(np.sqrt(size)), np.float32(-np.inf))
    top = scores.max(axis=1, keepdims=True)
    weights = np.exp(scores - np.where(np.isfinite(top), top, np.float32(0)))
    total = weights.sum(axis=1, keepdims=True)
    return weights / np.where(total > 0, total, np.float32(1))


def paged_attention_triton(
    q: Array,
    cache: Array,
    block_table: Array,
    query_start: Array,
    seq_lens: Array,
    positions: Array,
) -> Array:
    """The same on torch tensors; the softmax goes block by block (Milakov and Gimelshein 2018)."""
    assert_row_major(q, block_table)
    assert_dense(cache, query_start, seq_lens, positions)
    tokens, heads, head_size = q.shape
    out = q.new_empty(q.shape)
    block_p = power_of_two(head_size)
    _paged_attention_kernel[(tokens, heads)](
        q,
        cache,
        block_table,
        query_start,
        seq_lens,
        positions,
        out,
        q.stride(0),
        q.stride(1),
        block_table.stride(0),
        len(cache),
        block_table.shape[1] * cache.shape[1],
        len(seq_lens),
        HEADS=heads,
        KV_HEADS=cache.shape[2] // (2 * head_size),
        HEAD_SIZE=head_size,
        BLOCK_SIZE=cache.shape[1],
        BLOCK_J=min(64, max(1, BLOCK_ELEMENTS // block_p)),
        BLOCK_P=block_p,
        SCALE=head_size**-0.5,
        EXACT=is_exact_tensor(q),
    )
    return out


@triton.jit(do_not_specialize=["rows"])
def _paged_attention_kernel(
    p_q,  # [T, H, P], read
    p_cache,  # [B, S, 2 * G * P], read
    p_block_table,  # [R, M] int32, read
    p_query_start,  # [R + 1] int32, read
    p_seq_lens,  # [R] int32, read
    p_positions,  # [T] int32, read
    p_out,  # [T, H, P], written
    stride_q_t,
    stride_q_h,
    stride_table,
    blocks,
    context_max,  # M * S
    rows,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_SIZE: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    BLOCK_J: tl.constexpr,
    BLOCK_P: tl.constexpr,
    SCALE: tl.constexpr,
    EXACT: tl.constexpr,
):
    i_t, i_head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    i_kv_head = i_head // (HEADS // KV_HEADS)
    # Behind the last row there is nothing to see, and the sum stays 0.
    i_row = row_of_token(p_query_start, tl.program_id(0), rows)
    seq_len = tl.load(p_seq_lens + i_row, mask=i_row < rows, other=0)
    seen = tl.minimum(tl.minimum(tl.load(p_positions + i_t) + 1, seq_len), context_max)
    p_table_row = p_block_table + i_row.to(tl.int64) * stride_table
    o_p = tl.arange(0, BLOCK_P)
    m_p = o_p < HEAD_SIZE
    p_q_head = p_q + i_t * stride_q_t + i_head * stride_q_h
    b_q = widen(tl.load(p_q_head + o_p, mask=m_p, other=0), EXACT)

    b_sum = tl.zeros([BLOCK_P], b_q.dtype)
    total = tl.full([], 0, tl.float32)
    top = tl.full([], float("-inf"), tl.float32)
    i_first = i_row * 0
    b_sum, total, top = add_entries(
        b_q,
        b_sum,
        total,
        top,
        i_first,
        seen,
        p_cache,
        p_table_row,
        i_kv_head,
        blocks,
        KV_HEADS,
        HEAD_SIZE,
        BLOCK_SIZE,
        BLOCK_J,
        BLOCK_P,
        SCALE,
        EXACT,
    )
    if not EXACT:
        b_sum = b_sum / tl.where(total > 0, total, 1.0)
    tl.store(p_out + (i_t * HEADS + i_head) * HEAD_SIZE + o_p, b_sum, mask=m_p)


@triton.jit
def add_entries(
    b_q,  # [P]
    b_sum,  # [P], of the entries before
    total,  # their weights; of float only
    top,  # their greatest score; of float only
    i_first,
    seen,
    p_cache,  # [B, S, 2 * G * P], read
    p_table_row,  # [M] int32, read
    i_kv_head,
    blocks,
    KV_HEADS: tl.constexpr,
    HEAD_SIZE: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    BLOCK_J: tl.constexpr,
    BLOCK_P: tl.constexpr,
    SCALE: tl.constexpr,
    EXACT: tl.constexpr,
):
    """Sum, weights and greatest score with a row's entries from i_first on, up to what is seen."""
    while i_first < seen:
        o_j = i_first + tl.arange(0, BLOCK_J)
        m_j = o_j < seen
        b_key, b_value = load_entries(
            p_cache,
            p_table_row,
            o_j,
            m_j,
            i_kv_head,
            blocks,
            KV_HEADS,
            HEAD_SIZE,
            BLOCK_SIZE,
            BLOCK_P,
            EXACT,
        )
        b_score = tl.sum(b_q[None, :] * b_key, 1)
        if EXACT:
            b_sum += tl.sum(b_score[:, None] * b_value, 0)
        else:
            b_score = tl.where(m_j, b_score * SCALE, float("-inf"))
            top_before = top
            top = tl.maximum(top, tl.max(b_score, 0))
            b_weight = tl.exp(b_score - top)
            fade = tl.exp(top_before - top)
            total = total * fade + tl.sum(b_weight, 0)
            b_sum = b_sum * fade + tl.sum(b_weight[:, None] * b_value, 0)
        i_first += BLOCK_J
    return b_sum, total, top


@triton.jit
def load_entries(
    p_cache,  # [B, S, 2 * G * P], read
    p_table_row,  # [M] int32, read
    o_j,
    m_j,
    i_kv_head,
    blocks,
    KV_HEADS: tl.constexpr,
    HEAD_SIZE: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    BLOCK_P: tl.constexpr,
    EXACT: tl.constexpr,
):
    """Keys and values [J, P] of the positions o_j of a row; poison where it has no block."""
    o_p = tl.arange(0, BLOCK_P)
    b_block = tl.load(p_table_row + o_j // BLOCK_SIZE, mask=m_j, other=0).to(tl.int64)
    m_inside = ((b_block > 0) & (b_block < blocks))[:, None]
    o_entry = (b_block * BLOCK_SIZE + o_j % BLOCK_SIZE) * (2 * KV_HEADS * HEAD_SIZE)
    p_key = p_cache + o_entry[:, None] + i_kv_head * HEAD_SIZE + o_p[None, :]
    m_tile = m_j[:, None] & (o_p < HEAD_SIZE)[None, :]
    b_key = tl.load(p_key, mask=m_tile & m_inside, other=0)
    b_value = tl.load(p_key + KV_HEADS * HEAD_SIZE, mask=m_tile & m_inside, other=0)
    b_key = tl.where(m_tile, poisoned(widen(b_key, EXACT), m_inside, EXACT), 0)
    b_value = tl.where(m_tile, poisoned(widen(b_value, EXACT), m_inside, EXACT), 0)
    return b_key, b_value
