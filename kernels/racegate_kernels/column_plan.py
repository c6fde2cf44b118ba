"""Where running states go before a step, decided on the device: for tables whose rows stand in
slots, whose exact counts the host never learns (docs/mechanism.md#slots).
"""

from __future__ import annotations

import numpy as np

from racegate_kernels._triton import tl, triton
from racegate_kernels.launch import assert_dense, block_of, cdiv
from racegate_kernels.numerics import Array

BLOCK_R = 64


def column_plan_eager(
    computed: Array,
    query_start: Array,
    before: Array,
    state_table: Array,
    accepted: Array,
    column: Array,
    window_table: Array,
    source: Array,
    window_source: Array,
    target: Array,
    offset: Array,
    *,
    interval: int,
) -> None:
    """The columns of each row's running window, and the copy that its state needs to be there.

    computed: [R] int32, read; query_start: [R + 1] int32, read
    before: [R] int32, read; the first column of the last step's window, -1 before any state exists
    state_table: [R, M] int32, read
    accepted: [R] int32, read and written; becomes 1 where the state moves
    column: [R] int32, written; window_table: [R, 1 + K] int32, written, 0 behind the table
    source, window_source, target, offset: [R] int32, written; 0 where nothing is copied
    interval: tokens per state block
    """
    rows, last = np.arange(len(computed)), state_table.shape[1] - 1

    def blocks(columns: Array) -> Array:
        inside = (columns >= 0) & (columns <= last)
        return np.where(inside, state_table[rows, np.clip(columns, 0, last)], 0)

    first = -(-(computed + np.diff(query_start)) // interval) - 1
    moves = (before >= 0) & (before != first)
    live = before + accepted - 1
    for place in range(window_table.shape[1]):
        window_table[:, place] = blocks(first + place)
    column[...] = first
    source[...] = np.where(moves, blocks(live), 0)
    window_source[...] = np.where(moves, blocks(before), 0)
    target[...] = np.where(moves, blocks(first), 0)
    offset[...] = np.where(moves, accepted - 1, 0)
    accepted[...] = np.where(moves, 1, accepted)


def column_plan_triton(
    computed: Array,
    query_start: Array,
    before: Array,
    state_table: Array,
    accepted: Array,
    column: Array,
    window_table: Array,
    source: Array,
    window_source: Array,
    target: Array,
    offset: Array,
    *,
    interval: int,
) -> None:
    """The same on torch tensors."""
    vectors = (computed, query_start, before, accepted, column, source, window_source)
    assert_dense(*vectors, target, offset, state_table, window_table)
    rows, width = window_table.shape
    _column_plan_kernel[(cdiv(rows, BLOCK_R),)](
        computed,
        query_start,
        before,
        state_table,
        accepted,
        column,
        window_table,
        source,
        window_source,
        target,
        offset,
        state_table.shape[1],
        rows,
        INTERVAL=interval,
        WIDTH=width,
        BLOCK_W=block_of(width),
        BLOCK_R=BLOCK_R,
    )


@triton.jit
def _block(p_table_row, o_column, columns, m):
    """The block in a column of each row's table; 0 outside."""
    m_inside = m & (o_column >= 0) & (o_column < columns)
    return tl.load(p_table_row + o_column, mask=m_inside, other=0)


@triton.jit(do_not_specialize=["rows"])
def _column_plan_kernel(
    p_computed,  # [R] int32, read
    p_query_start,  # [R + 1] int32, read
    p_before,  # [R] int32, read
    p_state_table,  # [R, M] int32, read
    p_accepted,  # [R] int32, read and written
    p_column,  # [R] int32, written
    p_window_table,  # [R, 1 + K] int32, written
    p_source,  # [R] int32, written
    p_window_source,  # [R] int32, written
    p_target,  # [R] int32, written
    p_offset,  # [R] int32, written
    columns,
    rows,
    INTERVAL: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK_W: tl.constexpr,
    BLOCK_R: tl.constexpr,
):
    o_row = tl.program_id(0).to(tl.int64) * BLOCK_R + tl.arange(0, BLOCK_R)
    m_row = o_row < rows
    b_end = tl.load(p_computed + o_row, mask=m_row, other=0)
    b_end += tl.load(p_query_start + o_row + 1, mask=m_row, other=0)
    b_end -= tl.load(p_query_start + o_row, mask=m_row, other=0)
    # Division rounds towards zero here and down in the twin; an end is never negative.
    b_column = (b_end + INTERVAL - 1) // INTERVAL - 1
    b_before = tl.load(p_before + o_row, mask=m_row, other=-1)
    b_accepted = tl.load(p_accepted + o_row, mask=m_row, other=1)
    m_moves = m_row & (b_before >= 0) & (b_before != b_column)
    p_row = p_state_table + o_row * columns
    b_source = _block(p_row, b_before + b_accepted - 1, columns, m_moves)
    b_window_source = _block(p_row, b_before, columns, m_moves)
    b_target = _block(p_row, b_column, columns, m_moves)
    o_place = tl.arange(0, BLOCK_W)
    m_place = m_row[:, None] & (o_place < WIDTH)[None, :]
    b_window = _block(p_row[:, None], b_column[:, None] + o_place[None, :], columns, m_place)
    tl.store(p_window_table + o_row[:, None] * WIDTH + o_place[None, :], b_window, mask=m_place)
    tl.store(p_column + o_row, b_column, mask=m_row)
    tl.store(p_source + o_row, b_source, mask=m_row)
    tl.store(p_window_source + o_row, b_window_source, mask=m_row)
    tl.store(p_target + o_row, b_target, mask=m_row)
    tl.store(p_offset + o_row, tl.where(m_moves, b_accepted - 1, 0), mask=m_row)
    tl.store(p_accepted + o_row, tl.where(m_moves, 1, b_accepted), mask=m_row)
