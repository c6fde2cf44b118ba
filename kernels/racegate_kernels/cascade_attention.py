"""Attention over a paged cache in two parts: the common prefix of a batch, which is read for all
rows at once, and the rest of each row. DEFINITION section 5, cascade.

The parts are merged by their log-sum-exp (Ye et al. 2025, FlashInfer); in exact they are added.
"""

from __future__ import annotations

import numpy as np

from racegate_kernels._triton import tl, triton
from racegate_kernels.launch import (
    BLOCK_ELEMENTS,
    assert_dense,
    assert_row_major,
    cdiv,
    is_exact_tensor,
    power_of_two,
)
from racegate_kernels.numerics import Array, is_exact, widen
from racegate_kernels.paged_attention import add_entries, gather_entries, load_entries
from racegate_kernels.rows import row_of_token, token_rows, zeros_behind

# Tokens that read the common prefix together.
TILE_TOKENS = 8


def cascade_attention_eager(
    q: Array,
    cache: Array,
    block_table: Array,
    query_start: Array,
    seq_lens: Array,
    positions: Array,
    common_prefix: Array,
) -> Array:
    """Attention of every token over its own request's cache entries: over all of the common prefix,
    whatever the token's position, and behind it causally.

    q: [T, H, P] uint32 or float32, read; position-encoded
    cache: [B, S, 2 * G * P] same dtype, read; encoded keys, then values; each of G shared by
        consecutive heads
    block_table: [R, M] int32, read; a null block or one outside the pool reads poison
    query_start: [R + 1]; seq_lens: [R]; positions: [T] int32, read
    common_prefix: [1] int32, read; so many positions are read through the table's first row
    returns [T, H, P]; 0 for tokens behind the last row
    """
    used = int(query_start[-1])
    if used < len(q):
        row = (block_table, query_start, seq_lens, positions[:used], common_prefix)
        return zeros_behind(cascade_attention_eager(q[:used], cache, *row), len(q))
    if used == 0:
        return np.zeros_like(q)
    most = block_table.shape[1] * cache.shape[1]
    prefix = min(max(int(common_prefix[0]), 0), most)
    context = max(prefix, min(int(seq_lens.max(initial=0)), most))
    row_of, _ = token_rows(query_start)
    place = np.arange(context)
    shared = gather_entries(cache, block_table[:1], prefix)
    own = gather_entries(cache, block_table, context)
    behind = (place >= prefix) & (place <= positions[:, None])
    behind &= place < seq_lens[row_of, None]
    first = _part(q, shared, np.zeros_like(row_of), np.ones((used, prefix), bool))
    return _merged(first, _part(q, own, row_of, behind))


def _part(
    q: Array, entries: Array, row_of: Array, seen: Array
) -> tuple[Array, Array | None, Array | None]:
    """Attention over part of the entries: the weighted sum of values, unnormalised, and in float
    the top score and the sum of weights relative to it.

    q: [T, H, P]; entries: [R, C, 2 * G * P]; row_of: [T]; seen: [T, C] bool
    """
    _, heads, size = q.shape
    kept = entries.reshape(*entries.shape[:2], 2, entries.shape[2] // (2 * size), size)
    if kept.shape[3] < heads:
        kept = kept.repeat(heads // kept.shape[3], axis=3)
    keys, values = kept[:, :, 0], kept[:, :, 1]
    scores = (q[:, None] * keys[row_of]).sum(axis=-1, dtype=q.dtype)
    # Unseen entries may be poison (NaN), which a weight of zero would not hide.
    shown = np.where(seen[:, :, None, None], values[row_of], np.zeros((), q.dtype))
    if is_exact(q):
        weights = np.where(seen[..., None], scores, np.uint32(0))
        return (weights[..., None] * shown).sum(axis=1, dtype=q.dtype), None, None
    scores = np.where(seen[..., None], scores / np.float32(np.sqrt(size)), np.float32(-np.inf))
    top = scores.max(axis=1, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isfinite(top), top, np.float32(0))[:, None])
    return (weights[..., None] * shown).sum(axis=1, dtype=q.dtype), top, weights.sum(axis=1)


def _merged(
    first: tuple[Array, Array | None, Array | None],
    second: tuple[Array, Array | None, Array | None],
) -> Array:
    """[T, H, P]: what attention over both parts gives."""
    (value, top, total), (value_2, top_2, total_2) = first, second
    if top is None or total is None or top_2 is None or total_2 is None:
        exact: Array = value + value_2
        return exact
    highest = np.maximum(top, top_2)
    highest = np.where(np.isneginf(highest), np.float32(0), highest)
    fade, fade_2 = np.exp(top - highest), np.exp(top_2 - highest)
    weight = total * fade + total_2 * fade_2
    merged: Array = value * fade[..., None] + value_2 * fade_2[..., None]
    return merged / np.where(weight == 0, np.float32(1), weight)[..., None]


def cascade_attention_triton(
    q: Array,
    cache: Array,
    block_table: Array,
    query_start: Array,
    seq_lens: Array,
    positions: Array,
    common_prefix: Array,
) -> Array:
    """The same on torch tensors. A first kernel reads each entry of the prefix once for a tile of
    tokens; a second one goes on from what that leaves.
    """
    assert_row_major(q, block_table)
    assert_dense(cache, query_start, seq_lens, positions, common_prefix)
    tokens, heads, head_size = q.shape
    if len(block_table) == 0:
        return q.new_zeros(q.shape)  # there is no first row to read
    exact = is_exact_tensor(q)
    partial = q.new_empty(q.shape) if exact else q.float().new_empty(q.shape)
    top, total = partial.new_empty((2, tokens, heads)).unbind(0)
    block_p = power_of_two(head_size)
    context_max, out = block_table.shape[1] * cache.shape[1], q.new_empty(q.shape)
    shape = {
        "HEADS": heads,
        "KV_HEADS": cache.shape[2] // (2 * head_size),
        "HEAD_SIZE": head_size,
        "BLOCK_SIZE": cache.shape[1],
        "BLOCK_P": block_p,
        "SCALE": head_size**-0.5,
        "EXACT": exact,
    }
    _prefix_attention_kernel[(cdiv(tokens, TILE_TOKENS), heads)](
        q,
        cache,
        block_table,
        common_prefix,
        partial,
        top,
        total,
        q.stride(0),
        q.stride(1),
        len(cache),
        context_max,
        tokens,
        BLOCK_T=TILE_TOKENS,
        BLOCK_J=min(32, max(1, BLOCK_ELEMENTS // (TILE_TOKENS * block_p))),
        **shape,
    )
    _suffix_attention_kernel[(tokens, heads)](
        q,
        cache,
        block_table,
        query_start,
        seq_lens,
        positions,
        common_prefix,
        partial,
        top,
        total,
        out,
        q.stride(0),
        q.stride(1),
        block_table.stride(0),
        len(cache),
        context_max,
        len(seq_lens),
        BLOCK_J=min(64, max(1, BLOCK_ELEMENTS // block_p)),
        **shape,
    )
    return out


@triton.jit(do_not_specialize=["tokens"])
def _prefix_attention_kernel(
    p_q,  # [T, H, P], read
    p_cache,  # [B, S, 2 * G * P], read
    p_table,  # [M] int32 of the first row, read
    p_common_prefix,  # [1] int32, read
    p_partial,  # [T, H, P] int32 or float32, written
    p_top,  # [T, H] the same, written; of float only
    p_total,  # [T, H] the same, written; of float only
    stride_q_t,
    stride_q_h,
    blocks,
    context_max,  # M * S
    tokens,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_SIZE: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_J: tl.constexpr,
    BLOCK_P: tl.constexpr,
    SCALE: tl.constexpr,
    EXACT: tl.constexpr,
):
    i_head = tl.program_id(1)
    o_t = tl.program_id(0).to(tl.int64) * BLOCK_T + tl.arange(0, BLOCK_T)
    o_p = tl.arange(0, BLOCK_P)
    m_t = o_t < tokens
    m_q = m_t[:, None] & (o_p < HEAD_SIZE)[None, :]
    p_q_tile = p_q + o_t[:, None] * stride_q_t + i_head * stride_q_h + o_p[None, :]
    b_q = widen(tl.load(p_q_tile, mask=m_q, other=0), EXACT)
    prefix = tl.minimum(tl.load(p_common_prefix), context_max)
    b_sum = tl.zeros([BLOCK_T, BLOCK_P], b_q.dtype)
    total = tl.zeros([BLOCK_T], tl.float32)
    top = tl.full([BLOCK_T], float("-inf"), tl.float32)
    i_first = i_head * 0
    while i_first < prefix:
        o_j = i_first + tl.arange(0, BLOCK_J)
        m_j = o_j < prefix
        b_key, b_value = load_entries(
            p_cache,
            p_table,
            o_j,
            m_j,
            i_head // (HEADS // KV_HEADS),
            blocks,
            KV_HEADS,
            HEAD_SIZE,
            BLOCK_SIZE,
            BLOCK_P,
            EXACT,
        )
        b_score = tl.sum(b_q[:, None, :] * b_key[None, :, :], 2)
        if EXACT:
            b_sum += tl.sum(b_score[:, :, None] * b_value[None, :, :], 1)
        else:
            b_score = tl.where(m_j[None, :], b_score * SCALE, float("-inf"))
            top_before = top
            top = tl.maximum(top, tl.max(b_score, 1))
            b_weight = tl.exp(b_score - top[:, None])
            fade = tl.exp(top_before - top)
            total = total * fade + tl.sum(b_weight, 1)
            added = tl.sum(b_weight[:, :, None] * b_value[None, :, :], 1)
            b_sum = b_sum * fade[:, None] + added
        i_first += BLOCK_J
    o_head = o_t * HEADS + i_head
    tl.store(p_partial + o_head[:, None] * HEAD_SIZE + o_p[None, :], b_sum, mask=m_q)
    if not EXACT:
        tl.store(p_top + o_head, top, mask=m_t)
        tl.store(p_total + o_head, total, mask=m_t)


@triton.jit(do_not_specialize=["rows"])
def _suffix_attention_kernel(
    p_q,  # [T, H, P], read
    p_cache,  # [B, S, 2 * G * P], read
    p_block_table,  # [R, M] int32, read
    p_query_start,  # [R + 1] int32, read
    p_seq_lens,  # [R] int32, read
    p_positions,  # [T] int32, read
    p_common_prefix,  # [1] int32, read
    p_partial,  # [T, H, P] int32 or float32, read
    p_top,  # [T, H] the same, read; of float only
    p_total,  # [T, H] the same, read; of float only
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
    # Behind the last row there is nothing to see, the prefix included.
    i_row = row_of_token(p_query_start, tl.program_id(0), rows)
    seq_len = tl.load(p_seq_lens + i_row, mask=i_row < rows, other=0)
    seen = tl.minimum(tl.minimum(tl.load(p_positions + i_t) + 1, seq_len), context_max)
    p_table_row = p_block_table + i_row.to(tl.int64) * stride_table
    o_p = tl.arange(0, BLOCK_P)
    m_p = o_p < HEAD_SIZE
    p_q_head = p_q + i_t * stride_q_t + i_head * stride_q_h
    b_q = widen(tl.load(p_q_head + o_p, mask=m_p, other=0), EXACT)

    o_head = i_t * HEADS + i_head
    m_row = tl.where(i_row < rows, m_p, False)
    b_sum = widen(tl.load(p_partial + o_head * HEAD_SIZE + o_p, mask=m_row, other=0), EXACT)
    total = tl.full([], 0, tl.float32)
    top = tl.full([], float("-inf"), tl.float32)
    if not EXACT:
        total = tl.load(p_total + o_head, mask=i_row < rows, other=0.0)
        top = tl.load(p_top + o_head, mask=i_row < rows, other=float("-inf"))
    i_first = tl.minimum(tl.maximum(tl.load(p_common_prefix), 0), context_max)
    b_sum, total, top = add_entries(
        b_q,
        b_sum,
        total,
        top,
        i_first,
        seen,
        p_cache,
        p_table_row,
        i_head // (HEADS // KV_HEADS),
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
    tl.store(p_out + o_head * HEAD_SIZE + o_p, b_sum, mask=m_p)
