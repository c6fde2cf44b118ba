"""Verification ends before a draft that there is none of: its input becomes token 0.

docs/mechanism.md#drafts.
"""

from __future__ import annotations

import numpy as np

from racegate_kernels._triton import tl, triton
from racegate_kernels.launch import assert_dense, assert_row_major
from racegate_kernels.numerics import Array
from racegate_kernels.rows import gather_eager


def trim_drafts_eager(
    prev_drafts: Array,
    prev_positions: Array,
    draft_lens: Array,
    query_start: Array,
    logit_index: Array,
    input_ids: Array,
) -> None:
    """Of rows with a previous row, the places from the first draft of -1 on.

    prev_drafts: [R_max, K] int32, read in previous-row order
    prev_positions, draft_lens: [R] int32, read; query_start: [R + 1] int32, read
    logit_index: [R, 1 + K] int32, -1 written; input_ids: [T_max] int32, 0 written
    """
    gone = np.zeros(len(prev_positions), bool)
    first = query_start[1:] - draft_lens
    for place in range(prev_drafts.shape[1]):
        is_none = gather_eager(prev_drafts[:, place], prev_positions) < 0
        gone |= is_none & (prev_positions >= 0)
        rows = np.flatnonzero(gone & (draft_lens > place))
        logit_index[rows, 1 + place] = -1
        at = first[rows] + place
        input_ids[at[(at >= 0) & (at < len(input_ids))]] = 0


def trim_drafts_triton(
    prev_drafts: Array,
    prev_positions: Array,
    draft_lens: Array,
    query_start: Array,
    logit_index: Array,
    input_ids: Array,
) -> None:
    """The same on torch tensors."""
    assert_dense(prev_positions, draft_lens, query_start, logit_index, input_ids)
    assert_row_major(prev_drafts)
    _trim_drafts_kernel[(len(prev_positions),)](
        prev_drafts,
        prev_positions,
        draft_lens,
        query_start,
        logit_index,
        input_ids,
        prev_drafts.stride(0),
        len(prev_drafts),
        len(input_ids),
        DRAFTS=prev_drafts.shape[1],
    )


@triton.jit(do_not_specialize=["rows_max", "tokens_max"])
def _trim_drafts_kernel(
    p_prev_drafts,  # [R_max, K] int32, read
    p_prev_positions,  # [R] int32, read
    p_draft_lens,  # [R] int32, read
    p_query_start,  # [R + 1] int32, read
    p_logit_index,  # [R, 1 + K] int32, written
    p_input_ids,  # [T_max] int32, written
    stride_drafts,
    rows_max,
    tokens_max,
    DRAFTS: tl.constexpr,
):
    i_row = tl.program_id(0).to(tl.int64)
    previous = tl.load(p_prev_positions + i_row).to(tl.int64)
    drafts = tl.load(p_draft_lens + i_row)
    first = tl.load(p_query_start + i_row + 1) - drafts
    m_known = (previous >= 0) & (previous < rows_max)
    gone = previous < previous
    for place in range(DRAFTS):
        p_draft = p_prev_drafts + previous * stride_drafts + place
        gone = gone | (tl.load(p_draft, mask=m_known, other=0) < 0)
        m_gone = gone & (place < drafts)
        at = first + place
        tl.store(p_logit_index + i_row * (DRAFTS + 1) + 1 + place, -1, mask=m_gone)
        tl.store(p_input_ids + at, 0, mask=m_gone & (at >= 0) & (at < tokens_max))
