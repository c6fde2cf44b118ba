"""Inputs of the drafter's first pass: ids shifted left by one, and where each row ends.

docs/mechanism.md#drafts.
"""

from __future__ import annotations

import numpy as np

from racegate_kernels._triton import tl, triton
from racegate_kernels.launch import assert_dense, cdiv
from racegate_kernels.numerics import Array
from racegate_kernels.rows import T_ROW_BLOCK

BLOCK_T = 32


def draft_inputs_eager(
    input_ids: Array,
    query_start: Array,
    draft_lens: Array,
    valid_count: Array,
    next_token: Array,
    shifted_ids: Array,
    last_index: Array,
) -> None:
    """shifted[t] = the token behind input t; last_index[r] = the row's last input that stays.

    input_ids: [T] int32, read
    query_start: [R + 1]; draft_lens, valid_count, next_token: [R] int32, read
    shifted_ids: [T] int32, written; behind last_index the rejected drafts stay as padding, the
        row's end is 0, and so is every token behind the last row
    last_index: [R] int32, written; query end - 1 - rejected drafts, at least the row's start
    """
    ends = query_start[1:]
    used = int(query_start[-1])
    if used < len(shifted_ids):
        shifted_ids[used:] = 0
        input_ids, shifted_ids = input_ids[:used], shifted_ids[:used]
    rejected = np.where(draft_lens > 0, draft_lens + 1 - valid_count, 0)
    last = np.maximum(ends - 1 - rejected, query_start[:-1])
    filled = ends > query_start[:-1]
    inside = filled & (last < len(shifted_ids))
    shifted_ids[:-1] = input_ids[1:]
    shifted_ids[ends[filled] - 1] = 0
    shifted_ids[last[inside]] = next_token[inside]
    last_index[...] = last


def draft_inputs_triton(
    input_ids: Array,
    query_start: Array,
    draft_lens: Array,
    valid_count: Array,
    next_token: Array,
    shifted_ids: Array,
    last_index: Array,
) -> None:
    """The same on torch tensors."""
    rows = (query_start, draft_lens, valid_count, next_token, last_index)
    assert_dense(input_ids, shifted_ids, *rows)
    tokens = len(input_ids)
    _draft_inputs_kernel[(max(cdiv(tokens, BLOCK_T), 1),)](
        input_ids,
        query_start,
        draft_lens,
        valid_count,
        next_token,
        shifted_ids,
        last_index,
        tokens,
        len(draft_lens),
        BLOCK_T=BLOCK_T,
    )


@triton.jit(do_not_specialize=["tokens", "rows"])
def _draft_inputs_kernel(
    p_input_ids,  # [T] int32, read
    p_query_start,  # [R + 1] int32, read
    p_draft_lens,  # [R] int32, read
    p_valid_count,  # [R] int32, read
    p_next_token,  # [R] int32, read
    p_shifted_ids,  # [T] int32, written
    p_last_index,  # [R] int32, written
    tokens,
    rows,
    BLOCK_T: tl.constexpr,
):
    """Each token looks for the row that ends there, or has its last kept input there.

    With wrong counts that can be several rows. The last one wins, as in the twin; a scatter by
    row would leave that to chance.
    """
    i_tile = tl.program_id(0)
    o_t = i_tile * BLOCK_T + tl.arange(0, BLOCK_T)
    b_ends = tl.full([BLOCK_T], 0, tl.int32)
    b_row = tl.full([BLOCK_T], -1, tl.int32)
    i_first = 0
    while i_first < rows:
        o_row = i_first + tl.arange(0, T_ROW_BLOCK)
        m_row = o_row < rows
        b_start = tl.load(p_query_start + o_row, mask=m_row, other=0)
        b_end = tl.load(p_query_start + o_row + 1, mask=m_row, other=0)
        b_drafts = tl.load(p_draft_lens + o_row, mask=m_row, other=0)
        b_valid = tl.load(p_valid_count + o_row, mask=m_row, other=0)
        b_rejected = tl.where(b_drafts > 0, b_drafts + 1 - b_valid, 0)
        b_last = tl.maximum(b_end - 1 - b_rejected, b_start)
        tl.store(p_last_index + o_row, b_last, mask=tl.where(i_tile == 0, m_row, False))
        m_filled = b_end > b_start
        m_end = m_filled[None, :] & (o_t[:, None] == b_end[None, :] - 1)
        m_last = m_filled[None, :] & (o_t[:, None] == b_last[None, :])
        b_ends = tl.maximum(b_ends, tl.max(m_end.to(tl.int32), 1))
        b_row = tl.maximum(b_row, tl.max(tl.where(m_last, o_row[None, :], -1), 1))
        i_first += T_ROW_BLOCK
    used = tl.minimum(tl.load(p_query_start + rows), tokens)
    m_behind = (o_t + 1 < used) & (b_ends == 0)
    b_shifted = tl.load(p_input_ids + o_t + 1, mask=m_behind, other=0)
    b_next = tl.load(p_next_token + b_row, mask=b_row >= 0, other=0)
    b_shifted = tl.where(b_row >= 0, b_next, b_shifted)
    b_shifted = tl.where(o_t < used, b_shifted, 0)
    tl.store(p_shifted_ids + o_t, b_shifted, mask=o_t < tokens)
