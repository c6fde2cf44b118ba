"""Causal convolution with a window that can be rolled back by an accepted token count.

A request's window holds W - 1 + K inputs. After a decode step with q inputs it holds the history
shifted by one and all q inputs, so that reading W - 1 entries from offset a - 1 gives the true
history after a accepted tokens. docs/mechanism.md#states; the shape of production's
causal_conv1d update.
"""

from __future__ import annotations

import numpy as np

from racegate_kernels._triton import tl, triton
from racegate_kernels.launch import (
    assert_dense,
    assert_row_major,
    block_of,
    cdiv,
    is_exact_tensor,
    output_of,
)
from racegate_kernels.numerics import Array, act, act_eager, widen
from racegate_kernels.poison import poison_of, poisoned
from racegate_kernels.rows import first_behind, row_span, token_rows, zeros_behind

BLOCK_T = 8


def conv_update_eager(
    x: Array,
    weight: Array,
    window: Array,
    window_block: Array,
    query_start: Array,
    accepted: Array,
    computed: Array,
    is_decode: Array,
    bias: Array | None = None,
) -> Array:
    """The convolved inputs; rolls every row's window forward.

    x: [T, C] uint32 or float32, read
    weight: [C, W] same dtype, read
    window: [B, C, W - 1 + K] same dtype, read at offset accepted - 1, written from offset 0
    window_block: [R] int32, read; null or outside the pool: poison in, nothing written
    query_start: [R + 1] int32, read; a row without tokens changes nothing
    accepted: [R] int32, read; the count of the row's last step, 1 after prefill
    computed: [R] int32, read; 0 means the history is zeros
    is_decode: [R] int32, read; a prefill row keeps its last W - 1 inputs at offset 0
    bias: [C] same dtype, read; added before the activation
    returns [T, C]; 0 for tokens behind the last row, which no window gets to see
    """
    used = int(query_start[-1])
    if used < len(x):
        counts = query_start, accepted, computed, is_decode
        convolved = conv_update_eager(x[:used], weight, window, window_block, *counts, bias=bias)
        return zeros_behind(convolved, len(x))
    width = weight.shape[1]
    lengths = np.diff(query_start)
    longest = int(lengths.max(initial=0))
    row_of, index = token_rows(query_start)
    inputs = np.zeros((len(lengths), width - 1 + longest, x.shape[1]), x.dtype)
    inputs[:, : width - 1] = _history(window, window_block, accepted, computed, width=width)
    inputs[row_of, width - 1 + index] = x
    convolved = inputs[:, :longest] * weight[:, 0]
    for tap in range(1, width):
        convolved += inputs[:, tap : tap + longest] * weight[:, tap]
    if bias is not None:
        convolved += bias
    _roll(window, window_block, inputs, lengths, is_decode, width=width)
    return act_eager(convolved[row_of, index])


def _history(window: Array, block: Array, accepted: Array, computed: Array, *, width: int) -> Array:
    """[R, W - 1, C]: the last W - 1 inputs of each row, oldest first.

    window: [B, C, W - 1 + K]; block, accepted, computed: [R] int32
    """
    offset = accepted - 1
    inside = (block > 0) & (block < len(window))
    inside &= (offset >= 0) & (offset <= window.shape[2] - (width - 1))
    taps = np.where(inside, offset, 0)[:, None] + np.arange(width - 1)
    history = window[np.where(inside, block, 0)[:, None], :, taps]
    if not inside.all():
        history[~inside] = poison_of(window.dtype)
    history[computed <= 0] = 0
    return history


def _roll(
    window: Array, block: Array, inputs: Array, lengths: Array, is_decode: Array, *, width: int
) -> None:
    """Each row's window begins with what came before its next input.

    window: [B, C, W - 1 + K], written; block, lengths, is_decode: [R] int32
    inputs: [R, W - 1 + longest, C] the history of each row, then its inputs
    """
    for row in range(len(lengths)):
        length = int(lengths[row])
        if length == 0 or not 0 < block[row] < len(window):
            continue
        if is_decode[row]:
            kept = inputs[row, 1 : width - 1 + length][: window.shape[2]]
        else:
            kept = inputs[row, length : length + width - 1]
        window[block[row], :, : len(kept)] = kept.T


def conv_update_triton(
    x: Array,
    weight: Array,
    window: Array,
    window_block: Array,
    query_start: Array,
    accepted: Array,
    computed: Array,
    is_decode: Array,
    bias: Array | None = None,
) -> Array:
    """The same on torch tensors."""
    assert_row_major(x)
    if bias is not None:
        assert_dense(bias)
    assert_dense(weight, window, query_start, accepted, computed, is_decode)
    (tokens, channels), width, capacity = x.shape, weight.shape[1], window.shape[2]
    convolved = output_of(x, (tokens, channels), rows=len(window_block))
    block_c = block_of(channels, most=128)
    _conv_update_kernel[(len(window_block), cdiv(channels, block_c))](
        x,
        weight,
        weight if bias is None else bias,
        window,
        window_block,
        query_start,
        accepted,
        computed,
        is_decode,
        convolved,
        x.stride(0),
        window_block.stride(0),
        tokens,
        len(window),
        CHANNELS=channels,
        WIDTH=width,
        CAPACITY=capacity,
        BIASED=bias is not None,
        BLOCK_T=BLOCK_T,
        BLOCK_C=block_c,
        BLOCK_W=block_of(capacity),
        EXACT=is_exact_tensor(x),
    )
    return convolved


@triton.jit(do_not_specialize=["tokens"])
def _conv_update_kernel(
    p_x,  # [T, C], read
    p_weight,  # [C, W], read
    p_bias,  # [C], read if biased
    p_window,  # [B, C, W - 1 + K], read and written
    p_window_block,  # [R] int32, read; a column of a table
    p_query_start,  # [R + 1] int32, read
    p_accepted,  # [R] int32, read
    p_computed,  # [R] int32, read
    p_is_decode,  # [R] int32, read
    p_convolved,  # [T, C], written
    stride_x,
    stride_block,
    tokens,
    blocks,
    CHANNELS: tl.constexpr,
    WIDTH: tl.constexpr,
    CAPACITY: tl.constexpr,
    BIASED: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_W: tl.constexpr,
    EXACT: tl.constexpr,
):
    """One program per row and block of channels. No autotune: a trial run would roll the window."""
    i_row = tl.program_id(0)
    o_c = (tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C))[None, :]
    m_c = o_c < CHANNELS
    start, end = row_span(p_query_start, i_row, tokens)
    length = end - start
    i_block = tl.load(p_window_block + i_row * stride_block).to(tl.int64)
    m_block = (i_block > 0) & (i_block < blocks)
    p_window_row = p_window + (i_block * CHANNELS + o_c) * CAPACITY
    p_x_row = p_x + start.to(tl.int64) * stride_x + o_c
    offset = tl.load(p_accepted + i_row) - 1
    m_offset = m_block & (offset >= 0) & (offset <= CAPACITY - (WIDTH - 1))
    m_known = tl.load(p_computed + i_row) > 0
    p_history = p_window_row + offset

    i_first = start * 0
    while i_first < length:
        o_t = i_first + tl.arange(0, BLOCK_T)
        b_sum = widen(tl.zeros([BLOCK_T, BLOCK_C], p_x.dtype.element_ty), EXACT)
        for tap in tl.static_range(WIDTH):
            b_weight = tl.load(p_weight + o_c * WIDTH + tap, mask=m_c, other=0)
            b_inputs = _load_inputs(
                o_t + tap,
                p_history,
                p_x_row,
                stride_x,
                length,
                m_c,
                m_offset,
                m_known,
                WIDTH,
                EXACT,
            )
            b_sum += b_inputs * widen(b_weight, EXACT)
        if BIASED:
            b_sum += widen(tl.load(p_bias + o_c, mask=m_c, other=0), EXACT)
        p_out = p_convolved + (start + o_t).to(tl.int64)[:, None] * CHANNELS + o_c
        tl.store(p_out, act(b_sum, EXACT), mask=(o_t < length)[:, None] & m_c)
        i_first += BLOCK_T
    i_first = first_behind(i_row, tl.num_programs(0), end, tokens)
    while i_first < tokens:
        o_t = i_first + tl.arange(0, BLOCK_T)
        p_out = p_convolved + o_t.to(tl.int64)[:, None] * CHANNELS + o_c
        tl.store(p_out, 0, mask=(o_t < tokens)[:, None] & m_c)
        i_first += BLOCK_T

    m_decode = tl.load(p_is_decode + i_row) != 0
    dropped = tl.where(m_decode, 1, length)
    kept = tl.where(m_decode, tl.minimum(WIDTH - 2 + length, CAPACITY), WIDTH - 1)
    o_w = tl.arange(0, BLOCK_W)
    b_kept = _load_inputs(
        o_w + dropped, p_history, p_x_row, stride_x, length, m_c, m_offset, m_known, WIDTH, EXACT
    )
    # The window shifts within itself: every warp has read before any warp writes.
    tl.debug_barrier()
    m_kept = tl.where((length > 0) & m_block, o_w < kept, False)
    tl.store(p_window_row + o_w[:, None], b_kept, mask=m_kept[:, None] & m_c)


@triton.jit
def _load_inputs(
    o_i,  # [I]
    p_history,  # [1, C] pointers to the oldest entry of the history in the window
    p_x_row,  # [1, C] pointers to the row's first input
    stride_x,
    length,
    m_c,
    m_offset,
    m_known,
    WIDTH: tl.constexpr,
    EXACT: tl.constexpr,
):
    """[I, C]: entries o_i of the row's last W - 1 inputs followed by its new ones, then 0."""
    m_old = tl.where(m_known, o_i < WIDTH - 1, False)
    m_load = tl.where(m_offset, m_old, False)
    p_old = p_history + o_i[:, None]
    b_old = tl.load(p_old, mask=m_load[:, None] & m_c, other=0)
    b_old = tl.where(m_old[:, None], poisoned(widen(b_old, EXACT), m_offset, EXACT), 0)
    o_t = o_i - (WIDTH - 1)
    m_new = (o_t >= 0) & (o_t < length)
    p_new = p_x_row + o_t.to(tl.int64)[:, None] * stride_x
    b_new = tl.load(p_new, mask=m_new[:, None] & m_c, other=0)
    return tl.where(m_new[:, None], widen(b_new, EXACT), b_old)
