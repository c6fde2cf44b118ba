"""Causal convolution whose history is kept by token: cache mode all keeps it beside each state.

Where `conv_update` rolls one window per request, every block holds here the last W - 1 inputs up to
its own token, and nothing is rolled back. docs/mechanism.md#every-block.
"""

from __future__ import annotations

import numpy as np

from racegate_kernels._triton import tl, triton
from racegate_kernels.convolution import (
    T_CHUNK,
    convolve,
    load_columns,
    load_inputs,
    side_by_side,
    store_zeros,
)
from racegate_kernels.launch import (
    assert_dense,
    assert_row_major,
    block_of,
    cdiv,
    is_exact_tensor,
    output_of,
)
from racegate_kernels.numerics import Array, act_eager, widen
from racegate_kernels.poison import poison_of, poisoned
from racegate_kernels.rows import (
    column_block,
    first_behind,
    live_state,
    row_span,
    store_states,
    token_rows,
    zeros_behind,
)


def conv_by_token_eager(
    x: Array,
    weight: Array,
    window: Array,
    window_table: Array,
    query_start: Array,
    computed: Array,
    bias: Array | None = None,
) -> Array:
    """The convolved inputs; keeps the history behind every token that has a block.

    x: [T, C] uint32 or float32, read
    weight: [C, W] same dtype, read
    window: [B, C, W - 1] same dtype, read and written
    window_table: [R, 1 + N] int32, read; the blocks of a row's tokens, and in the last column the
        one it starts from. Null or outside the pool: poison in, nothing written
    query_start: [R + 1] int32, read; a row without tokens changes nothing
    computed: [R] int32, read; 0 means the history is zeros
    bias: [C] same dtype, read; added before the activation
    returns [T, C]; 0 for tokens behind the last row, which no window gets to see
    """
    used = int(query_start[-1])
    if used < len(x):
        rows = window_table, query_start, computed
        return zeros_behind(conv_by_token_eager(x[:used], weight, window, *rows, bias), len(x))
    width = weight.shape[1]
    lengths = np.diff(query_start)
    longest = int(lengths.max(initial=0))
    row_of, index = token_rows(query_start)
    live = np.full(len(lengths), window_table.shape[1], np.int32)
    poison = poison_of(window.dtype)
    inputs = np.zeros((len(lengths), x.shape[1], width - 1 + longest), x.dtype)
    inputs[:, :, : width - 1] = live_state(window, window_table, live, computed, poison=poison)
    inputs[row_of, :, width - 1 + index] = x
    convolved = inputs[:, :, :longest] * weight[:, 0, None]
    for tap in range(1, width):
        convolved += inputs[:, :, tap : tap + longest] * weight[:, tap, None]
    if bias is not None:
        convolved += bias[:, None]
    taps = index[:, None] + 1 + np.arange(width - 1)
    behind = inputs[row_of[:, None], :, taps].transpose(0, 2, 1)
    store_states(window, behind, window_table, query_start, np.ones_like(computed))
    return act_eager(convolved[row_of, :, index])


def conv_by_token_triton(
    x: Array,
    weight: Array,
    window: Array,
    window_table: Array,
    query_start: Array,
    computed: Array,
    bias: Array | None = None,
) -> Array:
    """The same on torch tensors."""
    assert_row_major(x, window_table)
    assert_dense(weight, window, query_start, computed, weight if bias is None else bias)
    (tokens, channels), width, rows = x.shape, weight.shape[1], len(window_table)
    convolved = output_of(x, (tokens, channels), rows=rows)
    # A token's block may be the one that its row starts from: all that is read is read before.
    history = window.new_empty((rows, width - 1, channels))
    block_c = block_of(channels, most=128)
    grid = (rows, cdiv(channels, block_c))
    table = (window_table, window_table.stride(0), window_table.shape[1], len(window))
    sizes = {"CHANNELS": channels, "WIDTH": width, "BLOCK_C": block_c, "EXACT": is_exact_tensor(x)}
    _history_kernel[grid](window, *table, computed, history, **sizes)
    _conv_by_token_kernel[grid](
        x,
        weight,
        weight if bias is None else bias,
        window,
        *table,
        query_start,
        history,
        convolved,
        x.stride(0),
        tokens,
        LEVELS=block_of(width - 1).bit_length() - 1,
        BIASED=bias is not None,
        **sizes,
    )
    return convolved


@triton.jit
def _history_kernel(
    p_window,  # [B, C, W - 1], read
    p_table,  # [R, 1 + N] int32, read
    stride_table,
    columns,
    blocks,
    p_computed,  # [R] int32, read
    p_history,  # [R, W - 1, C], written
    CHANNELS: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK_C: tl.constexpr,
    EXACT: tl.constexpr,
):
    """The last inputs of each row, from the block it starts from."""
    i_row = tl.program_id(0).to(tl.int64)
    o_c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    m_c = o_c < CHANNELS
    i_live = column_block(p_table + i_row * stride_table, columns - 1, columns, blocks)
    m_known = tl.load(p_computed + i_row) > 0
    for tap in tl.static_range(WIDTH - 1):
        p_live = p_window + (i_live * CHANNELS + o_c) * (WIDTH - 1) + tap
        b_history = tl.load(p_live, mask=tl.where(i_live > 0, m_c, False), other=0)
        b_history = poisoned(widen(b_history, EXACT), i_live > 0, EXACT)
        b_history = tl.where(tl.where(m_known, m_c, False), b_history, 0)
        p_out = p_history + (i_row * (WIDTH - 1) + tap) * CHANNELS + o_c
        tl.store(p_out, b_history, mask=m_c)


@triton.jit(do_not_specialize=["tokens"])
def _conv_by_token_kernel(
    p_x,  # [T, C], read
    p_weight,  # [C, W], read
    p_bias,  # [C], read if biased
    p_window,  # [B, C, W - 1], written
    p_table,  # [R, 1 + N] int32, read
    stride_table,
    columns,
    blocks,
    p_query_start,  # [R + 1] int32, read
    p_history,  # [R, W - 1, C], read
    p_convolved,  # [T, C], written
    stride_x,
    tokens,
    CHANNELS: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK_C: tl.constexpr,
    EXACT: tl.constexpr,
    LEVELS: tl.constexpr,  # 2 ** LEVELS is the least that is not below W - 1
    BIASED: tl.constexpr,
):
    """One program per row and block of channels. No autotune: a trial run would write windows."""
    i_row = tl.program_id(0)
    o_c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    m_c = o_c < CHANNELS
    start, end = row_span(p_query_start, i_row, tokens)
    length = end - start
    p_x_row = p_x + start.to(tl.int64) * stride_x + o_c
    p_old = p_history + i_row.to(tl.int64) * (WIDTH - 1) * CHANNELS + o_c
    p_out = p_convolved + start.to(tl.int64) * CHANNELS + o_c
    p_table_row = p_table + i_row.to(tl.int64) * stride_table
    weights = load_columns(p_weight + o_c * WIDTH, 1, m_c, WIDTH, EXACT)
    b_bias = widen(tl.zeros([BLOCK_C], p_x.dtype.element_ty), EXACT)
    if BIASED:
        b_bias = widen(tl.load(p_bias + o_c, mask=m_c, other=0), EXACT)

    before = load_columns(p_old, CHANNELS, m_c, WIDTH - 1, EXACT)
    i_t = start * 0
    while i_t < length:
        inputs = load_inputs(before, p_x_row, stride_x, i_t, length, m_c, T_CHUNK, EXACT)
        p_chunk, left = p_out + i_t.to(tl.int64) * CHANNELS, length - i_t
        convolve(inputs, weights, b_bias, p_chunk, CHANNELS, left, m_c, WIDTH, T_CHUNK, EXACT)
        for place in tl.static_range(T_CHUNK):
            i_column = tl.where(place < left, i_t + place, -1)
            i_block = column_block(p_table_row, i_column, columns, blocks)
            b_tile = side_by_side(inputs, 1 + place, WIDTH - 1, LEVELS)
            o_w = tl.arange(0, 2**LEVELS)
            p_kept = p_window + i_block * (CHANNELS * (WIDTH - 1))
            p_kept = p_kept + o_c[:, None] * (WIDTH - 1) + o_w
            m_kept = tl.where(i_block > 0, m_c, False)
            tl.store(p_kept, b_tile, mask=m_kept[:, None] & (o_w < WIDTH - 1))
        before = inputs[T_CHUNK:]
        i_t += T_CHUNK
    i_zero = first_behind(i_row, tl.num_programs(0), end, tokens)
    store_zeros(p_convolved + o_c, i_zero, tokens, CHANNELS, m_c)
