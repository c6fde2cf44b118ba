"""Scatter of the previous step's sampled tokens and drafts into this step's inputs.

docs/mechanism.md#correction.
"""

from __future__ import annotations

import numpy as np

from racegate_kernels._triton import tl, triton
from racegate_kernels.launch import assert_dense, assert_row_major, cdiv
from racegate_kernels.numerics import Array
from racegate_kernels.poison import T_POISON_I32
from racegate_kernels.rows import T_ROW_BLOCK, gather_eager

BLOCK_T = 32


def scatter_inputs_eager(
    input_ids: Array,
    query_start: Array,
    prev_positions: Array,
    draft_lens: Array,
    prev_next_token: Array,
    prev_drafts: Array,
) -> None:
    """Rows with a previous row get their last sampled token and its first draft_lens drafts.

    input_ids: [T_max] int32, read and written; other rows, and the tokens
        behind the last row, keep the host's ids
    query_start: [R + 1]; prev_positions, draft_lens: [R] int32, read
    prev_next_token: [R_max] int32; prev_drafts: [R_max, K] int32, read in previous-row order
    """
    rows = np.flatnonzero(prev_positions >= 0)
    previous = prev_positions[rows]
    first = query_start[rows + 1] - 1 - draft_lens[rows]
    _put(input_ids, first, gather_eager(prev_next_token, previous))
    for place in range(prev_drafts.shape[1]):
        has = draft_lens[rows] > place
        _put(input_ids, first[has] + 1 + place, gather_eager(prev_drafts[:, place], previous[has]))


def _put(input_ids: Array, index: Array, values: Array) -> None:
    """Values to their places; none for a place outside.

    input_ids: [T_max] int32, written; index: [N] int32 or int64; values: [N] int32
    """
    inside = (index >= 0) & (index < len(input_ids))
    input_ids[index[inside]] = values[inside]


def scatter_inputs_triton(
    input_ids: Array,
    query_start: Array,
    prev_positions: Array,
    draft_lens: Array,
    prev_next_token: Array,
    prev_drafts: Array,
) -> None:
    """The same on torch tensors."""
    assert_dense(input_ids, query_start, prev_positions, draft_lens, prev_next_token)
    assert_row_major(prev_drafts)
    assert len(prev_drafts) == len(prev_next_token), f"{len(prev_drafts)=} {len(prev_next_token)=}"
    _scatter_inputs_kernel[(cdiv(len(input_ids), BLOCK_T),)](
        input_ids,
        query_start,
        prev_positions,
        draft_lens,
        prev_next_token,
        prev_drafts,
        prev_drafts.stride(0),
        prev_drafts.shape[1],
        len(input_ids),
        len(prev_positions),
        len(prev_next_token),
        BLOCK_T=BLOCK_T,
    )


@triton.jit(do_not_specialize=["rows", "tokens_max"])
def _scatter_inputs_kernel(
    p_input_ids,  # [T_max] int32, written
    p_query_start,  # [R + 1] int32, read
    p_prev_positions,  # [R] int32, read
    p_draft_lens,  # [R] int32, read
    p_prev_next_token,  # [R_max] int32, read
    p_prev_drafts,  # [R_max, K] int32, read
    stride_drafts,
    drafts_max,
    tokens_max,
    rows,
    rows_max,
    BLOCK_T: tl.constexpr,
):
    """Each token looks for the row that writes it.

    Rows whose counts are wrong may write over each other. Among them the last in the twin's order
    wins, which is by place in the row first; a scatter by row would leave that to chance.
    """
    o_t = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)
    b_writer = tl.full([BLOCK_T], -1, tl.int32)  # place * rows + row
    i_first = 0
    while i_first < rows:
        o_row = i_first + tl.arange(0, T_ROW_BLOCK)
        m_row = o_row < rows
        b_previous = tl.load(p_prev_positions + o_row, mask=m_row, other=-1)
        b_drafts = tl.load(p_draft_lens + o_row, mask=m_row, other=0)
        b_sampled_at = tl.load(p_query_start + o_row + 1, mask=m_row, other=0) - 1 - b_drafts
        b_place = o_t[:, None] - b_sampled_at[None, :]
        b_last = tl.where(b_previous < 0, -1, tl.maximum(tl.minimum(b_drafts, drafts_max), 0))
        m_writes = (b_place >= 0) & (b_place <= b_last[None, :])
        b_candidate = tl.where(m_writes, b_place * rows + o_row[None, :], -1)
        b_writer = tl.maximum(b_writer, tl.max(b_candidate, 1))
        i_first += T_ROW_BLOCK
    m_written = (b_writer >= 0) & (o_t < tokens_max)
    b_place = tl.maximum(b_writer, 0) // tl.maximum(rows, 1)
    b_row = tl.maximum(b_writer, 0) % tl.maximum(rows, 1)
    b_previous = tl.load(p_prev_positions + b_row, mask=m_written, other=0).to(tl.int64)
    m_known = m_written & (b_previous < rows_max)
    m_sampled = b_place == 0
    p_next = p_prev_next_token + b_previous
    p_draft = p_prev_drafts + b_previous * stride_drafts + b_place - 1
    b_next = tl.load(p_next, mask=m_known & m_sampled, other=T_POISON_I32)
    b_draft = tl.load(p_draft, mask=m_known & ~m_sampled, other=T_POISON_I32)
    tl.store(p_input_ids + o_t, tl.where(m_sampled, b_next, b_draft), mask=m_written)
