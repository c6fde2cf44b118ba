"""Mamba2 (SSD) state update with 1 + K state columns per request and accepted counts.

S' = a S + x (x) B per head (Dao and Gu 2024); the columns: docs/mechanism.md#states.
"""

from __future__ import annotations

import numpy as np

from racegate_kernels._triton import tl, triton
from racegate_kernels.launch import (
    assert_dense,
    assert_row_major,
    cdiv,
    early_start,
    is_exact_tensor,
    output_of,
    power_of_two,
    state_tile,
)
from racegate_kernels.numerics import (
    Array,
    is_exact,
    mix,
    mix_eager,
    softplus,
    softplus_eager,
    widen,
)
from racegate_kernels.poison import poison_of
from racegate_kernels.rows import (
    begin,
    first_behind,
    kept_block,
    live_block,
    live_state,
    load_live_state,
    row_span,
    store_states,
    token_rows,
    zeros_behind,
)


def mamba2_update_eager(
    x: Array,
    b: Array,
    c: Array,
    dt: Array,
    dt_bias: Array,
    a_log: Array,
    skip: Array,
    state: Array,
    state_table: Array,
    query_start: Array,
    accepted: Array,
    computed: Array,
    is_decode: Array,
) -> Array:
    """Outputs of the recurrence from state column accepted - 1; decode tokens store a state each.

    x: [T, H, P] uint32 or float32, read
    b, c: [T, G * N] same dtype, read; each of G groups shared by consecutive heads
    dt: [T, H]; dt_bias, a_log, skip: [H] same dtype, read
    state: [B, H, P, N] same dtype, read and written
    state_table: [R, 1 + K] int32, read; null or outside the pool: poison in, nothing written
    query_start: [R + 1]; accepted, computed, is_decode: [R] int32, read; a row without tokens
        changes nothing
    returns [T, H, P]; 0 for tokens behind the last row, which no state gets to see
    """
    used = int(query_start[-1])
    if used < len(x):
        inputs = (x[:used], b[:used], c[:used], dt[:used], dt_bias, a_log, skip)
        counts = query_start, accepted, computed, is_decode
        return zeros_behind(mamba2_update_eager(*inputs, state, state_table, *counts), len(x))
    decay, scale = _decay(dt + dt_bias, a_log)
    b, c = _of_heads(b, state), _of_heads(c, state)
    update = x[..., None] * b[:, :, None, :]
    if scale is not None:
        update *= scale[..., None, None]
    poison = poison_of(state.dtype)
    current = live_state(state, state_table, accepted, computed, poison=poison)
    stepped = np.empty_like(update)
    row_of, index = token_rows(query_start)
    for step in range(int(index.max(initial=-1)) + 1):
        tokens = np.flatnonzero(index == step)
        rows = row_of[tokens]
        stepped[tokens] = current[rows] = (
            decay[tokens, :, None, None] * current[rows] + update[tokens]
        )
    store_states(state, stepped, state_table, query_start, is_decode)
    return (stepped * c[:, :, None, :]).sum(axis=-1, dtype=x.dtype) + skip[:, None] * x


def _of_heads(shared: Array, state: Array) -> Array:
    """[T, 1 or H, N] of what groups share, [T, G * N]: a single group is left to broadcasting.

    shared: uint32 or float32; state: [B, H, P, N]
    """
    _, heads, _, size = state.shape
    groups = shared.reshape(len(shared), shared.shape[1] // size, size)
    return groups if groups.shape[1] == 1 else groups.repeat(heads // groups.shape[1], axis=1)


def _decay(dt: Array, a_log: Array) -> tuple[Array, Array | None]:
    """Decay [T, H] and input scale [T, H] (None: 1).

    dt: [T, H]; a_log: [H]; uint32 or float32, both the same
    """
    if is_exact(dt):
        # Odd, so that multiplying loses no bit: a corrupted state stays corrupted.
        return mix_eager(dt) | 1, None
    step = softplus_eager(dt)
    return np.exp(-step * np.exp(a_log)), step


def mamba2_update_triton(
    x: Array,
    b: Array,
    c: Array,
    dt: Array,
    dt_bias: Array,
    a_log: Array,
    skip: Array,
    state: Array,
    state_table: Array,
    query_start: Array,
    accepted: Array,
    computed: Array,
    is_decode: Array,
) -> Array:
    """The same on torch tensors."""
    assert_row_major(x, b, c, dt, state_table)
    assert_dense(dt_bias, a_log, skip, state[0], query_start, accepted, computed, is_decode)
    tokens, heads, head_size = x.shape
    state_size = state.shape[3]
    y = output_of(x, x.shape, rows=len(state_table))
    tile = state_tile(state, state_table)
    _mamba2_update_kernel[(cdiv(head_size, tile.block_p), heads, len(state_table))](
        x,
        b,
        c,
        dt,
        dt_bias,
        a_log,
        skip,
        state,
        state_table,
        query_start,
        accepted,
        computed,
        is_decode,
        y,
        x.stride(0),
        x.stride(1),
        b.stride(0),
        c.stride(0),
        dt.stride(0),
        state.stride(0),
        state_table.stride(0),
        tokens,
        len(state),
        state_table.shape[1],
        HEAD_SIZE=head_size,
        STATE_SIZE=state_size,
        GROUP_HEADS=heads // (b.shape[1] // state_size),
        BLOCK_P=tile.block_p,
        BLOCK_N=tile.block_n,
        BLOCK_COLUMNS=power_of_two(state_table.shape[1]),
        EVICTION=tile.eviction,
        num_warps=tile.warps,
        maxnreg=tile.registers,
        **early_start(state.device),
        EXACT=is_exact_tensor(x),
    )
    return y


@triton.jit(do_not_specialize=["tokens"])
def _mamba2_update_kernel(
    p_x,  # [T, H, P], read
    p_b,  # [T, G * N], read
    p_c,  # [T, G * N], read
    p_dt,  # [T, H], read
    p_dt_bias,  # [H], read
    p_a_log,  # [H], read
    p_skip,  # [H], read
    p_state,  # [B, H, P, N], read and written
    p_state_table,  # [R, 1 + K] int32, read
    p_query_start,  # [R + 1] int32, read
    p_accepted,  # [R] int32, read
    p_computed,  # [R] int32, read
    p_is_decode,  # [R] int32, read
    p_y,  # [T, H, P], written
    stride_x_t,
    stride_x_h,
    stride_b,
    stride_c,
    stride_dt,
    stride_state,
    stride_table,
    tokens,
    blocks,
    columns,
    HEAD_SIZE: tl.constexpr,
    STATE_SIZE: tl.constexpr,
    GROUP_HEADS: tl.constexpr,
    BLOCK_P: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    EVICTION: tl.constexpr,
    EARLY: tl.constexpr,
    EXACT: tl.constexpr,
):
    """One program per (tile of P, head, row): programs that start together work on neighbouring
    memory.

    The tile stays in registers while the row's tokens pass. No autotune: a trial run would
    overwrite the state.
    """
    begin(EARLY)
    i_row, i_head = tl.program_id(2), tl.program_id(1)
    o_p = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    o_n = tl.arange(0, BLOCK_N)
    m_p, m_n = o_p < HEAD_SIZE, o_n < STATE_SIZE
    m_tile = m_p[:, None] & m_n[None, :]
    p_tile = p_state + (i_head * HEAD_SIZE + o_p)[:, None] * STATE_SIZE + o_n[None, :]
    p_table_row = p_state_table + i_row.to(tl.int64) * stride_table
    i_t, end = row_span(p_query_start, i_row, tokens)
    i_live = live_block(p_table_row, p_accepted + i_row, columns, blocks, BLOCK_COLUMNS)
    computed = tl.load(p_computed + i_row)
    m_decode = tl.load(p_is_decode + i_row) != 0
    dt_bias = widen(tl.load(p_dt_bias + i_head), EXACT)
    a_log = widen(tl.load(p_a_log + i_head), EXACT)
    skip = widen(tl.load(p_skip + i_head), EXACT)
    i_zero = first_behind(i_row, tl.num_programs(2), end, tokens)
    while i_zero < tokens:
        p_y_token = p_y + (i_zero.to(tl.int64) * tl.num_programs(1) + i_head) * HEAD_SIZE
        tl.store(p_y_token + o_p, 0, mask=m_p)
        i_zero += 1

    p_inputs = (
        p_x + i_head * stride_x_h + o_p,
        p_b + i_head // GROUP_HEADS * STATE_SIZE + o_n,
        p_c + i_head // GROUP_HEADS * STATE_SIZE + o_n,
        p_dt + i_head,
    )
    strides = (stride_x_t, stride_b, stride_c, stride_dt)
    masks = (m_p, m_n)
    i_first = i_t
    b_x, b_b, b_c, dt = _token_inputs(p_inputs, strides, masks, i_t, end, EXACT)
    WHOLE: tl.constexpr = STATE_SIZE == BLOCK_N
    b_state = load_live_state(
        p_tile, m_tile, i_live, stride_state, computed, WHOLE, EVICTION, EXACT
    )
    # The live column may be among those written: each element by the thread that has read it.
    i_block = kept_block(p_table_row, i_t, i_first, end, m_decode, columns, blocks)
    while i_t < end:
        # The next token's, before this one's stores: behind them they would wait for nothing else.
        inputs = _token_inputs(p_inputs, strides, masks, i_t + 1, end, EXACT)
        i_next = kept_block(p_table_row, i_t + 1, i_first, end, m_decode, columns, blocks)
        decay, scale = _decay_of(dt + dt_bias, a_log, EXACT)
        b_state = decay * b_state + (scale * b_x)[:, None] * b_b[None, :]
        b_y = tl.sum(b_state * b_c[None, :], 1) + skip * b_x
        p_y_token = p_y + (i_t.to(tl.int64) * tl.num_programs(1) + i_head) * HEAD_SIZE
        tl.store(p_y_token + o_p, b_y, mask=m_p)
        m_store = tl.where(i_block > 0, m_tile, False)
        tl.store(p_tile + i_block * stride_state, b_state, mask=m_store)
        b_x, b_b, b_c, dt = inputs
        i_block = i_next
        i_t += 1


@triton.jit
def _token_inputs(p_inputs, strides, masks, i_t, end, EXACT: tl.constexpr):
    """x, B, C and dt of a token; zeros behind the row's last one."""
    p_x, p_b, p_c, p_dt = p_inputs
    stride_x, stride_b, stride_c, stride_dt = strides
    m_p, m_n = masks
    i_token, m_in = i_t.to(tl.int64), i_t < end
    b_x = tl.load(p_x + i_token * stride_x, mask=tl.where(m_in, m_p, False), other=0)
    b_b = tl.load(p_b + i_token * stride_b, mask=tl.where(m_in, m_n, False), other=0)
    b_c = tl.load(p_c + i_token * stride_c, mask=tl.where(m_in, m_n, False), other=0)
    dt = tl.load(p_dt + i_token * stride_dt, mask=m_in, other=0)
    return widen(b_x, EXACT), widen(b_b, EXACT), widen(b_c, EXACT), widen(dt, EXACT)


@triton.jit
def _decay_of(dt, a_log, EXACT: tl.constexpr):
    """Decay and input scale of a head."""
    if EXACT:
        # Odd, so that multiplying loses no bit: a corrupted state stays corrupted.
        decay = mix(dt) | 1
        scale = tl.full([], 1, tl.uint32)
    else:
        scale = softplus(dt)
        decay = tl.exp(-scale * tl.exp(a_log))
    return decay, scale
