"""Causal convolution with a window that can be rolled back by an accepted token count.

A request's window holds W - 1 + K inputs. After a decode step with q inputs it holds the history
shifted by one and all q inputs, so that reading W - 1 entries from offset a - 1 gives the true
history after a accepted tokens. docs/mechanism.md#states; the shape of production's
causal_conv1d update.
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
    early_start,
    is_exact_tensor,
    output_of,
)
from racegate_kernels.numerics import Array, act_eager, widen
from racegate_kernels.poison import poison_of, poisoned
from racegate_kernels.rows import begin, first_behind, row_span, token_rows, zeros_behind

# Channels of a program and its warps: two channels a thread. Smaller programs come faster than the
# device can start them.
BLOCK_C, WARPS = 256, 4


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
    block_c = block_of(channels, most=BLOCK_C)
    _conv_update_kernel[(cdiv(channels, block_c), len(window_block))](
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
        BLOCK_C=block_c,
        LEVELS=block_of(capacity).bit_length() - 1,
        EXACT=is_exact_tensor(x),
        **early_start(x.device),
        num_warps=WARPS,
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
    BLOCK_C: tl.constexpr,
    LEVELS: tl.constexpr,  # 2 ** LEVELS is the least that is not below CAPACITY
    EARLY: tl.constexpr,
    EXACT: tl.constexpr,
):
    """One program per block of channels and row: programs that start together work on neighbouring
    memory. No autotune: a trial run would roll the window.
    """
    begin(EARLY)
    i_row = tl.program_id(1)
    o_c = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    m_c = o_c < CHANNELS
    start, end = row_span(p_query_start, i_row, tokens)
    length = end - start
    i_block = tl.load(p_window_block + i_row.to(tl.int64) * stride_block).to(tl.int64)
    m_block = (i_block > 0) & (i_block < blocks)
    p_window_row = p_window + i_block * (CHANNELS * CAPACITY) + o_c * CAPACITY
    p_x_row = p_x + start.to(tl.int64) * stride_x + o_c
    offset = tl.load(p_accepted + i_row) - 1
    m_offset = m_block & (offset >= 0) & (offset <= CAPACITY - (WIDTH - 1))
    m_known = tl.load(p_computed + i_row) > 0
    m_decode = tl.load(p_is_decode + i_row) != 0

    m_load = tl.where(m_offset & m_known, m_c, False)
    loaded = load_columns(p_window_row + offset, 1, m_load, WIDTH - 1, EXACT)
    history = ()
    for tap in tl.static_range(WIDTH - 1):
        b_old = tl.where(m_known, poisoned(loaded[tap], m_offset, EXACT), 0)
        history = history + (b_old,)  # noqa: RUF005
    # As many tokens as there is room for in the window, and then those of a longer row.
    ROOM: tl.constexpr = CAPACITY - WIDTH + 2
    i_t = start * 0
    inputs = load_inputs(history, p_x_row, stride_x, i_t, length, m_c, ROOM, EXACT)
    weights = load_columns(p_weight + o_c * WIDTH, 1, m_c, WIDTH, EXACT)
    b_bias = widen(tl.zeros([BLOCK_C], p_x.dtype.element_ty), EXACT)
    if BIASED:
        b_bias = widen(tl.load(p_bias + o_c, mask=m_c, other=0), EXACT)
    # The window shifts within itself: every warp has read before any warp writes.
    tl.debug_barrier()
    m_roll = m_block & (length > 0)
    if m_roll & m_decode:
        kept = tl.minimum(WIDTH - 2 + length, CAPACITY)
        _roll_decode(p_window_row, inputs, kept, m_c, CAPACITY, LEVELS)
    if m_roll & (m_decode == 0):
        _roll_prefill(p_window_row, history, p_x_row, stride_x, length, m_c, WIDTH, EXACT)

    p_out = p_convolved + start.to(tl.int64) * CHANNELS + o_c
    convolve(inputs, weights, b_bias, p_out, CHANNELS, length, m_c, WIDTH, ROOM, EXACT)
    i_t += ROOM
    before = inputs[ROOM:]
    while i_t < length:
        later = load_inputs(before, p_x_row, stride_x, i_t, length, m_c, T_CHUNK, EXACT)
        p_later = p_out + i_t.to(tl.int64) * CHANNELS
        left = length - i_t
        convolve(later, weights, b_bias, p_later, CHANNELS, left, m_c, WIDTH, T_CHUNK, EXACT)
        before = later[T_CHUNK:]
        i_t += T_CHUNK
    i_zero = first_behind(i_row, tl.num_programs(1), end, tokens)
    store_zeros(p_convolved + o_c, i_zero, tokens, CHANNELS, m_c)


@triton.jit
def _roll_decode(
    p_window_row,  # [C] pointers to the oldest entry
    inputs,  # tuple of [C], what the row's history and its tokens are
    kept,
    m_c,
    CAPACITY: tl.constexpr,
    LEVELS: tl.constexpr,
):
    """The window is everything behind the oldest input."""
    b_tile = side_by_side(inputs, 1, CAPACITY, LEVELS)
    o_w = tl.arange(0, 2**LEVELS)
    p_tile = p_window_row[:, None] + o_w
    if kept == CAPACITY:
        # The same with a mask that the compiler knows, which makes for wider stores.
        tl.store(p_tile, b_tile, mask=m_c[:, None] & (o_w < CAPACITY))
    else:
        tl.store(p_tile, b_tile, mask=m_c[:, None] & (o_w < kept))


@triton.jit
def _roll_prefill(
    p_window_row,  # [C] pointers to the oldest entry
    history,  # tuple of W - 1 [C]
    p_x_row,  # [C] pointers to the row's first input
    stride_x,
    length,
    m_c,
    WIDTH: tl.constexpr,
    EXACT: tl.constexpr,
):
    """The window begins with the last W - 1 inputs."""
    for place in tl.static_range(WIDTH - 1):
        i_t = length + place - (WIDTH - 1)
        p_input = p_x_row + i_t.to(tl.int64) * stride_x
        b_input = widen(tl.load(p_input, mask=tl.where(i_t >= 0, m_c, False), other=0), EXACT)
        for old in tl.static_range(WIDTH - 1):
            b_input = tl.where(i_t == old - (WIDTH - 1), history[old], b_input)
        tl.store(p_window_row + place, b_input, mask=m_c)
