"""State migration of cache mode align: copies of states and conv windows between blocks.

Before a step a request's running state moves to the column its tokens will end in; after a step the
state at a crossed boundary is kept in the full column, which is what the prefix cache publishes.
docs/mechanism.md#columns.
"""

from __future__ import annotations

import numpy as np

from racegate_kernels._triton import tl, triton
from racegate_kernels.launch import assert_dense, assert_row_major, block_of, cdiv
from racegate_kernels.numerics import Array

BLOCK_R = 64


def migrate_states_eager(state: Array, source: Array, target: Array) -> None:
    """state[target] = state[source], all rows read before any is written.

    state: [B, ...] read and written
    source, target: [R] int32, read; a row with either null or outside the pool is left alone
    """
    rows = _movable(source, target, blocks=len(state))
    state[target[rows]] = state[source[rows]]


def migrate_windows_eager(
    window: Array, source: Array, target: Array, offset: Array, *, width: int
) -> None:
    """The W - 1 inputs at `offset` of the source window become offset 0 of the target.

    Source and target may be the same window.
    window: [B, C, W - 1 + K] read and written
    source, target, offset: [R] int32, read; a row with a block or an offset outside is left alone
    width: W
    """
    most = window.shape[2] - (width - 1)
    rows = _movable(source, target, blocks=len(window)) & (offset >= 0) & (offset <= most)
    taps = offset[rows][:, None] + np.arange(width - 1)
    # A copy, so that a window shifted within itself is read before it is overwritten.
    kept = window[source[rows][:, None], :, taps]
    window[target[rows], :, : width - 1] = kept.transpose(0, 2, 1)


def _movable(source: Array, target: Array, *, blocks: int) -> Array:
    """[R] bool: rows of which both blocks are real. source, target: [R] int32"""
    return (source > 0) & (source < blocks) & (target > 0) & (target < blocks)


def boundary_plan_eager(
    accepted: Array,
    computed: Array,
    scheduled: Array,
    draft_lens: Array,
    is_decode: Array,
    column: Array,
    state_table: Array,
    state_source: Array,
    window_source: Array,
    target: Array,
    offset: Array,
    accepted_out: Array,
    *,
    interval: int,
) -> None:
    """Which state to keep for a boundary crossed in this step, and the count for the next step.

    accepted, computed, scheduled, draft_lens, is_decode: [R] int32, read
    column: [R] int32, read; first column of the row's running window
    state_table: [R, M] int32, read
    state_source, window_source, target, offset: [R] int32, written; 0 where nothing is copied
    accepted_out: [R] int32, written; accepted, but 1 where the boundary state lands in the running
        column itself
    interval: tokens per state block
    """
    rows = np.arange(len(accepted))
    first = computed + scheduled - draft_lens
    reached = first + accepted - 1
    boundary = reached // interval * interval
    crossed = (is_decode != 0) & (boundary >= first) & (boundary > 0)
    bias = np.where(crossed, boundary - first, 0)
    keep = np.where(crossed, boundary // interval - 1, 0)
    last = state_table.shape[1] - 1
    at = np.clip(column, 0, last)
    state_source[...] = np.where(crossed, state_table[rows, np.clip(at + bias, 0, last)], 0)
    window_source[...] = np.where(crossed, state_table[rows, at], 0)
    target[...] = np.where(crossed, state_table[rows, np.clip(keep, 0, last)], 0)
    offset[...] = bias
    accepted_out[...] = np.where(crossed & (keep == at), 1, accepted)


def migrate_states_triton(state: Array, source: Array, target: Array) -> None:
    """The same on torch tensors; no row's target is another row's source."""
    assert_dense(state[0], source, target)
    size = state[0].numel()
    block = block_of(size)
    _migrate_states_kernel[(len(source), cdiv(size, block))](
        state, source, target, state.stride(0), len(state), SIZE=size, BLOCK=block
    )


def migrate_windows_triton(
    window: Array, source: Array, target: Array, offset: Array, *, width: int
) -> None:
    """The same on torch tensors; no row's target is another row's source."""
    assert_dense(window, source, target, offset)
    blocks, channels, capacity = window.shape
    block_c = block_of(channels, most=256)
    _migrate_windows_kernel[(len(source), cdiv(channels, block_c))](
        window,
        source,
        target,
        offset,
        blocks,
        CHANNELS=channels,
        CAPACITY=capacity,
        KEPT=width - 1,
        BLOCK_C=block_c,
        BLOCK_W=block_of(width - 1),
    )


def boundary_plan_triton(
    accepted: Array,
    computed: Array,
    scheduled: Array,
    draft_lens: Array,
    is_decode: Array,
    column: Array,
    state_table: Array,
    state_source: Array,
    window_source: Array,
    target: Array,
    offset: Array,
    accepted_out: Array,
    *,
    interval: int,
) -> None:
    """The same on torch tensors."""
    read = (accepted, computed, scheduled, draft_lens, is_decode, column)
    written = (state_source, window_source, target, offset, accepted_out)
    assert_dense(*read, *written)
    assert_row_major(state_table)
    rows = len(accepted)
    _boundary_plan_kernel[(cdiv(rows, BLOCK_R),)](
        *read,
        state_table,
        *written,
        state_table.stride(0),
        state_table.shape[1],
        rows,
        INTERVAL=interval,
        BLOCK_R=BLOCK_R,
    )


@triton.jit
def _move(p_source, p_target, i_row, blocks):
    """Source and target block of a row, and whether both are in the pool and neither is null."""
    i_source = tl.load(p_source + i_row).to(tl.int64)
    i_target = tl.load(p_target + i_row).to(tl.int64)
    m_source = (i_source > 0) & (i_source < blocks)
    return i_source, i_target, m_source & (i_target > 0) & (i_target < blocks)


@triton.jit
def _migrate_states_kernel(
    p_state,  # [B, ...], read and written
    p_source,  # [R] int32, read
    p_target,  # [R] int32, read
    stride_state,
    blocks,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    i_source, i_target, m_move = _move(p_source, p_target, tl.program_id(0), blocks)
    o = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    m = tl.where(m_move, o < SIZE, False)
    b_state = tl.load(p_state + i_source * stride_state + o, mask=m)
    tl.store(p_state + i_target * stride_state + o, b_state, mask=m)


@triton.jit
def _migrate_windows_kernel(
    p_window,  # [B, C, W - 1 + K], read and written
    p_source,  # [R] int32, read
    p_target,  # [R] int32, read
    p_offset,  # [R] int32, read
    blocks,
    CHANNELS: tl.constexpr,
    CAPACITY: tl.constexpr,
    KEPT: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_W: tl.constexpr,
):
    i_row = tl.program_id(0)
    i_source, i_target, m_move = _move(p_source, p_target, i_row, blocks)
    offset = tl.load(p_offset + i_row)
    m_move = m_move & (offset >= 0) & (offset <= CAPACITY - KEPT)
    o_c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    o_w = tl.arange(0, BLOCK_W)
    m = tl.where(m_move, (o_c < CHANNELS)[:, None] & (o_w < KEPT)[None, :], False)
    o = o_c[:, None] * CAPACITY + o_w[None, :]
    stride_window = CHANNELS * CAPACITY
    b_window = tl.load(p_window + i_source * stride_window + offset + o, mask=m)
    # A window may shift within itself: every warp has read before any warp writes.
    tl.debug_barrier()
    tl.store(p_window + i_target * stride_window + o, b_window, mask=m)


@triton.jit(do_not_specialize=["rows"])
def _boundary_plan_kernel(
    p_accepted,  # [R] int32, read
    p_computed,  # [R] int32, read
    p_scheduled,  # [R] int32, read
    p_draft_lens,  # [R] int32, read
    p_is_decode,  # [R] int32, read
    p_column,  # [R] int32, read
    p_state_table,  # [R, M] int32, read
    p_state_source,  # [R] int32, written
    p_window_source,  # [R] int32, written
    p_target,  # [R] int32, written
    p_offset,  # [R] int32, written
    p_accepted_out,  # [R] int32, written
    stride_table,
    columns,
    rows,
    INTERVAL: tl.constexpr,
    BLOCK_R: tl.constexpr,
):
    o_row = tl.program_id(0).to(tl.int64) * BLOCK_R + tl.arange(0, BLOCK_R)
    m_row = o_row < rows
    b_accepted = tl.load(p_accepted + o_row, mask=m_row, other=0)
    b_first = tl.load(p_computed + o_row, mask=m_row, other=0)
    b_first += tl.load(p_scheduled + o_row, mask=m_row, other=0)
    b_first -= tl.load(p_draft_lens + o_row, mask=m_row, other=0)
    m_decode = tl.load(p_is_decode + o_row, mask=m_row, other=0) != 0
    # A negative count is divided towards zero here and down in the twin; neither crosses anything.
    b_boundary = (b_first + b_accepted - 1) // INTERVAL * INTERVAL
    m_crossed = m_decode & (b_boundary >= b_first) & (b_boundary > 0)
    b_bias = tl.where(m_crossed, b_boundary - b_first, 0)
    b_keep = tl.where(m_crossed, b_boundary // INTERVAL - 1, 0)
    b_at = tl.load(p_column + o_row, mask=m_row, other=0)
    b_at = tl.minimum(tl.maximum(b_at, 0), columns - 1)
    b_live = tl.minimum(tl.maximum(b_at + b_bias, 0), columns - 1)
    p_table_row = p_state_table + o_row * stride_table
    b_state_source = tl.load(p_table_row + b_live, mask=m_crossed, other=0)
    b_window_source = tl.load(p_table_row + b_at, mask=m_crossed, other=0)
    b_target = tl.load(p_table_row + tl.minimum(b_keep, columns - 1), mask=m_crossed, other=0)
    tl.store(p_state_source + o_row, b_state_source, mask=m_row)
    tl.store(p_window_source + o_row, b_window_source, mask=m_row)
    tl.store(p_target + o_row, b_target, mask=m_row)
    tl.store(p_offset + o_row, b_bias, mask=m_row)
    b_accepted = tl.where(m_crossed & (b_keep == b_at), 1, b_accepted)
    tl.store(p_accepted_out + o_row, b_accepted, mask=m_row)
