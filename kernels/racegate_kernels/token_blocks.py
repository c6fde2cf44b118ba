"""Where the state after each token is kept in cache mode all, and where a row's live one stands.

A table of blocks by token: the kernels of recurrent layers then take every row for one that decodes
and keep what has a block. docs/mechanism.md#every-block.
"""

from __future__ import annotations

import numpy as np

from racegate_kernels._triton import tl, triton
from racegate_kernels.launch import assert_dense, assert_row_major, block_of, cdiv
from racegate_kernels.numerics import Array


def token_blocks_eager(
    computed: Array,
    query_start: Array,
    accepted: Array,
    anchor: Array,
    is_decode: Array,
    state_table: Array,
    window_table: Array,
    *,
    interval: int,
) -> None:
    """The block of the state after each of a row's tokens, and of the state that the row starts
    from.

    computed: [R] int32, read; query_start: [R + 1] int32, read; a negative count counts as 0
    accepted: [R] int32, read; the count of the row's last step
    anchor: [R] int32, read; the first running column of that step, -1 if there was none
    is_decode: [R] int32, read; another row keeps its last state and those at boundaries
    state_table: [R, M] int32, read
    window_table: [R, 1 + N] int32, written; N: the most tokens of a row. 0 behind a row's tokens,
        where nothing is kept and behind the table. The last column: the live state's block
    interval: tokens per state block
    """
    rows, place = np.arange(len(computed))[:, None], np.arange(window_table.shape[1] - 1)[None, :]
    start, length = np.maximum(computed, 0)[:, None], np.diff(query_start)[:, None]
    reached = start + place + 1
    decodes, is_full = (is_decode != 0)[:, None], reached % interval == 0
    first = (start + length) // interval
    column = np.where(is_full, reached // interval - 1, first + np.where(decodes, place, 0))
    kept = (place < length) & (decodes | is_full | (place == length - 1))
    live = np.where(start % interval == 0, start // interval, (anchor + accepted)[:, None]) - 1
    has_live = (start > 0) & ((start % interval == 0) | (anchor >= 0)[:, None])
    columns, named = np.hstack((column, live)), np.hstack((kept, has_live))
    named &= (columns >= 0) & (columns < state_table.shape[1])
    window_table[...] = np.where(named, state_table[rows, np.where(named, columns, 0)], 0)


def token_blocks_triton(
    computed: Array,
    query_start: Array,
    accepted: Array,
    anchor: Array,
    is_decode: Array,
    state_table: Array,
    window_table: Array,
    *,
    interval: int,
) -> None:
    """The same on torch tensors."""
    assert_dense(computed, query_start, accepted, anchor, is_decode)
    assert_row_major(state_table, window_table)
    rows, width = window_table.shape
    block_w = block_of(width, most=256)
    _token_blocks_kernel[(rows, cdiv(width, block_w))](
        computed,
        query_start,
        accepted,
        anchor,
        is_decode,
        state_table,
        window_table,
        state_table.stride(0),
        window_table.stride(0),
        state_table.shape[1],
        INTERVAL=interval,
        WIDTH=width,
        BLOCK_W=block_w,
    )


@triton.jit
def _token_blocks_kernel(
    p_computed,  # [R] int32, read
    p_query_start,  # [R + 1] int32, read
    p_accepted,  # [R] int32, read
    p_anchor,  # [R] int32, read
    p_is_decode,  # [R] int32, read
    p_state_table,  # [R, M] int32, read
    p_window_table,  # [R, 1 + N] int32, written
    stride_state_table,
    stride_window_table,
    columns,
    INTERVAL: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK_W: tl.constexpr,
):
    """One program per row and block of its tokens."""
    i_row = tl.program_id(0).to(tl.int64)
    o_place = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)
    start = tl.maximum(tl.load(p_computed + i_row), 0)
    length = tl.load(p_query_start + i_row + 1) - tl.load(p_query_start + i_row)
    m_decode = tl.load(p_is_decode + i_row) != 0
    anchor = tl.load(p_anchor + i_row)
    m_start = start % INTERVAL == 0
    b_reached = start + o_place + 1
    m_full = b_reached % INTERVAL == 0
    b_running = (start + length) // INTERVAL + tl.where(m_decode, o_place, 0)
    b_column = tl.where(m_full, b_reached // INTERVAL - 1, b_running)
    m_kept = m_full | (o_place == length - 1)
    m_kept = (o_place < length) & tl.where(m_decode, o_place >= 0, m_kept)
    live = tl.where(m_start, start // INTERVAL, anchor + tl.load(p_accepted + i_row)) - 1
    m_live = (start > 0) & (m_start | (anchor >= 0))
    m_last = o_place == WIDTH - 1
    b_column = tl.where(m_last, live, b_column)
    m_named = tl.where(m_last, False, m_kept) | tl.where(m_live, m_last, False)
    m_named = m_named & (b_column >= 0) & (b_column < columns)
    p_table_row = p_state_table + i_row * stride_state_table
    b_block = tl.load(p_table_row + b_column, mask=m_named, other=0)
    p_window_row = p_window_table + i_row * stride_window_table
    tl.store(p_window_row + o_place, b_block, mask=o_place < WIDTH)
