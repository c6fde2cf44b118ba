"""Gated delta rule state update with 1 + K state columns per request and accepted counts.

S' = a (S - beta (S k) k^T) + beta v k^T per head (Yang et al. 2024); the columns:
docs/mechanism.md#states.
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
    sigmoid,
    sigmoid_eager,
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

EPSILON = 1e-6
T_EPSILON = tl.constexpr(EPSILON)


def gated_delta_update_eager(
    q: Array,
    k: Array,
    v: Array,
    b: Array,
    g: Array,
    dt_bias: Array,
    a_log: Array,
    state: Array,
    state_table: Array,
    query_start: Array,
    accepted: Array,
    computed: Array,
    is_decode: Array,
) -> Array:
    """Outputs of the recurrence from state column accepted - 1; decode tokens store a state each.

    q, k: [T, Q, N]; v: [T, H, P] uint32 or float32, read (as they leave the convolution); each of
        Q keys shared by consecutive heads
    b, g: [T, H]; dt_bias, a_log: [H] same dtype, read
    state: [B, H, P, N] same dtype, read and written
    state_table: [R, 1 + K] int32, read; null or outside the pool: poison in, nothing written
    query_start: [R + 1]; accepted, computed, is_decode: [R] int32, read; a row without tokens
        changes nothing
    returns [T, H, P]; 0 for tokens behind the last row, which no state gets to see
    """
    used = int(query_start[-1])
    if used < len(v):
        inputs = (q[:used], k[:used], v[:used], b[:used], g[:used], dt_bias, a_log)
        counts = query_start, accepted, computed, is_decode
        return zeros_behind(gated_delta_update_eager(*inputs, state, state_table, *counts), len(v))
    q, k, beta, decay = _gates(q, k, b, g + dt_bias, a_log)
    if q.shape[1] < v.shape[1]:
        q, k = (x.repeat(v.shape[1] // x.shape[1], axis=1) for x in (q, k))
    added = (beta[..., None] * v)[..., None] * k[:, :, None, :]
    removed = beta[..., None] * k
    poison = poison_of(state.dtype)
    current = live_state(state, state_table, accepted, computed, poison=poison)
    stepped = np.empty_like(added)
    row_of, index = token_rows(query_start)
    for step in range(int(index.max(initial=-1)) + 1):
        tokens = np.flatnonzero(index == step)
        rows = row_of[tokens]
        before = current[rows]
        along = (before * k[tokens, :, None, :]).sum(axis=-1, dtype=v.dtype)
        kept = before - along[..., None] * removed[tokens, :, None, :]
        stepped[tokens] = current[rows] = decay[tokens, :, None, None] * kept + added[tokens]
    store_states(state, stepped, state_table, query_start, is_decode)
    return (stepped * q[:, :, None, :]).sum(axis=-1, dtype=v.dtype)


def _gates(q: Array, k: Array, b: Array, g: Array, a_log: Array) -> tuple[Array, ...]:
    """q, k as the rule uses them, beta [T, H] and decay [T, H].

    q, k: [T, Q, N]; b, g: [T, H]; a_log: [H]; uint32 or float32, all the same
    """
    if is_exact(q):
        # beta even and the decay odd keep the update a bijection of the state: a corrupted state
        # stays corrupted.
        return q, k, mix_eager(b) * 2, mix_eager(g) | 1
    k = k / np.sqrt((k * k).sum(axis=-1, keepdims=True) + np.float32(EPSILON))
    q = q / np.sqrt((q * q).sum(axis=-1, keepdims=True) + np.float32(EPSILON))
    q = q / np.float32(np.sqrt(q.shape[-1]))
    return q, k, sigmoid_eager(b), np.exp(-np.exp(a_log) * softplus_eager(g))


def gated_delta_update_triton(
    q: Array,
    k: Array,
    v: Array,
    b: Array,
    g: Array,
    dt_bias: Array,
    a_log: Array,
    state: Array,
    state_table: Array,
    query_start: Array,
    accepted: Array,
    computed: Array,
    is_decode: Array,
) -> Array:
    """The same on torch tensors."""
    assert_row_major(q, k, v, b, g, state_table)
    assert_dense(dt_bias, a_log, state[0], query_start, accepted, computed, is_decode)
    tokens, heads, head_size = v.shape
    state_size = q.shape[2]
    out = output_of(v, v.shape, rows=len(state_table))
    tile = state_tile(state, state_table)
    _gated_delta_update_kernel[(cdiv(head_size, tile.block_p), heads, len(state_table))](
        q,
        k,
        v,
        b,
        g,
        dt_bias,
        a_log,
        state,
        state_table,
        query_start,
        accepted,
        computed,
        is_decode,
        out,
        *q.stride()[:2],
        *k.stride()[:2],
        *v.stride()[:2],
        b.stride(0),
        g.stride(0),
        state.stride(0),
        state_table.stride(0),
        tokens,
        len(state),
        state_table.shape[1],
        HEAD_SIZE=head_size,
        STATE_SIZE=state_size,
        KEY_HEADS=heads // q.shape[1],
        BLOCK_P=tile.block_p,
        BLOCK_N=tile.block_n,
        BLOCK_COLUMNS=power_of_two(state_table.shape[1]),
        EVICTION=tile.eviction,
        num_warps=tile.warps,
        maxnreg=tile.registers,
        **early_start(state.device),
        EXACT=is_exact_tensor(v),
    )
    return out


@triton.jit(do_not_specialize=["tokens"])
def _gated_delta_update_kernel(
    p_q,  # [T, Q, N], read
    p_k,  # [T, Q, N], read
    p_v,  # [T, H, P], read
    p_b,  # [T, H], read
    p_g,  # [T, H], read
    p_dt_bias,  # [H], read
    p_a_log,  # [H], read
    p_state,  # [B, H, P, N], read and written
    p_state_table,  # [R, 1 + K] int32, read
    p_query_start,  # [R + 1] int32, read
    p_accepted,  # [R] int32, read
    p_computed,  # [R] int32, read
    p_is_decode,  # [R] int32, read
    p_out,  # [T, H, P], written
    stride_q_t,
    stride_q_h,
    stride_k_t,
    stride_k_h,
    stride_v_t,
    stride_v_h,
    stride_b,
    stride_g,
    stride_state,
    stride_table,
    tokens,
    blocks,
    columns,
    HEAD_SIZE: tl.constexpr,
    STATE_SIZE: tl.constexpr,
    KEY_HEADS: tl.constexpr,  # heads that share a key
    BLOCK_P: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    EVICTION: tl.constexpr,
    EARLY: tl.constexpr,
    EXACT: tl.constexpr,
):
    """One program per (tile of P, head, row): programs that start together work on neighbouring
    memory, and the tiles of a head read the same keys and queries.

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
    i_zero = first_behind(i_row, tl.num_programs(2), end, tokens)
    while i_zero < tokens:
        p_out_token = p_out + (i_zero.to(tl.int64) * tl.num_programs(1) + i_head) * HEAD_SIZE
        tl.store(p_out_token + o_p, 0, mask=m_p)
        i_zero += 1

    p_inputs = (
        p_q + i_head // KEY_HEADS * stride_q_h + o_n,
        p_k + i_head // KEY_HEADS * stride_k_h + o_n,
        p_v + i_head * stride_v_h + o_p,
        p_b + i_head,
        p_g + i_head,
    )
    strides = (stride_q_t, stride_k_t, stride_v_t, stride_b, stride_g)
    masks = (m_p, m_n)
    i_first = i_t
    b_q, b_k, b_v, b, g = _token_inputs(p_inputs, strides, masks, i_t, end, EXACT)
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
        k_scale, q_scale, beta, decay = _gates_of(
            b_q, b_k, b, g + dt_bias, a_log, STATE_SIZE, EXACT
        )
        b_along = tl.sum(b_state * b_k[None, :], 1) * k_scale
        b_change = beta * (b_v - decay * b_along) * k_scale
        b_state = decay * b_state + b_change[:, None] * b_k[None, :]
        b_out = tl.sum(b_state * b_q[None, :], 1) * q_scale
        p_out_token = p_out + (i_t.to(tl.int64) * tl.num_programs(1) + i_head) * HEAD_SIZE
        tl.store(p_out_token + o_p, b_out, mask=m_p)
        m_store = tl.where(i_block > 0, m_tile, False)
        tl.store(p_tile + i_block * stride_state, b_state, mask=m_store)
        b_q, b_k, b_v, b, g = inputs
        i_block = i_next
        i_t += 1


@triton.jit
def _token_inputs(p_inputs, strides, masks, i_t, end, EXACT: tl.constexpr):
    """q, k, v, b and g of a token; zeros behind the row's last one."""
    p_q, p_k, p_v, p_b, p_g = p_inputs
    stride_q, stride_k, stride_v, stride_b, stride_g = strides
    m_p, m_n = masks
    i_token, m_in = i_t.to(tl.int64), i_t < end
    b_q = tl.load(p_q + i_token * stride_q, mask=tl.where(m_in, m_n, False), other=0)
    b_k = tl.load(p_k + i_token * stride_k, mask=tl.where(m_in, m_n, False), other=0)
    b_v = tl.load(p_v + i_token * stride_v, mask=tl.where(m_in, m_p, False), other=0)
    b = widen(tl.load(p_b + i_token * stride_b, mask=m_in, other=0), EXACT)
    g = widen(tl.load(p_g + i_token * stride_g, mask=m_in, other=0), EXACT)
    return widen(b_q, EXACT), widen(b_k, EXACT), widen(b_v, EXACT), b, g


@triton.jit
def _gates_of(b_q, b_k, b, g, a_log, STATE_SIZE: tl.constexpr, EXACT: tl.constexpr):
    """Factors that normalise k and q, beta and decay of a head."""
    if EXACT:
        # beta even and the decay odd keep the update a bijection of the state: a corrupted state
        # stays corrupted.
        k_scale = tl.full([], 1, tl.uint32)
        q_scale = k_scale
        beta = mix(b) * 2
        decay = mix(g) | 1
    else:
        k_scale = 1.0 / tl.sqrt(tl.sum(b_k * b_k, 0) + T_EPSILON)
        q_scale = STATE_SIZE**-0.5 / tl.sqrt(tl.sum(b_q * b_q, 0) + T_EPSILON)
        beta = sigmoid(b)
        decay = tl.exp(-tl.exp(a_log) * softplus(g))
    return k_scale, q_scale, beta, decay
