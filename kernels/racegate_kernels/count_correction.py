"""Correction of computed and accepted counts after a batch change, from the previous step.

The host prepared this step as if every draft of the previous one had been accepted, in a new row
order. Previous results stand in previous-row order and are reached through the rows of the
previous step that the host names. The computed count uses what was scheduled, not only what was
drafted, so that no host value of a row with a previous row is trusted at any depth
(docs/mechanism.md#correction).
"""

from __future__ import annotations

import numpy as np

from racegate_kernels._triton import tl, triton
from racegate_kernels.launch import assert_dense, cdiv, power_of_two
from racegate_kernels.numerics import Array
from racegate_kernels.poison import load_or_poison
from racegate_kernels.rows import gather_eager

BLOCK = 128


def correct_computed_eager(
    computed: Array,
    computed_host: Array,
    computed_source: Array,
    prev_scheduled: Array,
    prev_draft_lens: Array,
    prev_valid_count: Array,
) -> None:
    """computed[r] = its value in the previous row + inputs of that step that stayed.

    computed: [R_max] int32, read in previous-row order, written in current-row order
    computed_host: [R] int32, read; the value without a previous row
    computed_source: [R] int32, read; previous row, or -1
    prev_scheduled, prev_draft_lens, prev_valid_count: [R_max] int32, read in previous-row order
    """
    taken = computed_source >= 0
    row = np.where(taken, computed_source, 0)
    scheduled, drafts = gather_eager(prev_scheduled, row), gather_eager(prev_draft_lens, row)
    stayed = scheduled - drafts - 1 + gather_eager(prev_valid_count, row)
    # The gather is complete before anything is written: in-place would read moved rows twice.
    corrected = np.where(taken, gather_eager(computed, row) + stayed, computed_host)
    computed[: len(corrected)] = corrected


def select_accepted_eager(
    accepted: Array, accepted_host: Array, count_source: Array, prev_valid_count: Array
) -> None:
    """accepted[r] = the previous step's count of the row's request.

    accepted: [R_max] int32, written
    accepted_host, count_source: [R] int32, read; the host's count stays without a previous row
    prev_valid_count: [R_max] int32, read in previous-row order
    """
    taken = count_source >= 0
    counts = gather_eager(prev_valid_count, np.where(taken, count_source, 0))
    accepted[: len(count_source)] = np.where(taken, counts, accepted_host)


def correct_computed_triton(
    computed: Array,
    computed_host: Array,
    computed_source: Array,
    prev_scheduled: Array,
    prev_draft_lens: Array,
    prev_valid_count: Array,
) -> None:
    """The same on torch tensors."""
    previous = (prev_scheduled, prev_draft_lens, prev_valid_count)
    assert_dense(computed, computed_host, computed_source, *previous)
    rows_max = len(computed)
    assert all(len(x) == rows_max for x in previous), f"{rows_max=}"
    _correct_computed_kernel[(1,)](
        computed,
        computed_host,
        computed_source,
        *previous,
        len(computed_source),
        rows_max,
        BLOCK=power_of_two(rows_max),
    )


def select_accepted_triton(
    accepted: Array, accepted_host: Array, count_source: Array, prev_valid_count: Array
) -> None:
    """The same on torch tensors."""
    assert_dense(accepted, accepted_host, count_source, prev_valid_count)
    _select_accepted_kernel[(cdiv(len(count_source), BLOCK),)](
        accepted,
        accepted_host,
        count_source,
        prev_valid_count,
        len(count_source),
        len(prev_valid_count),
        BLOCK=BLOCK,
    )


@triton.jit(do_not_specialize=["rows"])
def _correct_computed_kernel(
    p_computed,  # [R_max] int32, read in previous-row order, written in current-row order
    p_computed_host,  # [R] int32, read
    p_computed_source,  # [R] int32, read
    p_prev_scheduled,  # [R_max] int32, read
    p_prev_draft_lens,  # [R_max] int32, read
    p_prev_valid_count,  # [R_max] int32, read
    rows,
    rows_max,
    BLOCK: tl.constexpr,
):
    """One program for all rows: they move in place, so all are read before any is written."""
    o_row = tl.arange(0, BLOCK)
    m_row = o_row < rows
    b_previous = tl.load(p_computed_source + o_row, mask=m_row, other=-1)
    m_taken = b_previous >= 0
    b_stayed = load_or_poison(p_prev_scheduled, b_previous, rows_max)
    b_stayed -= load_or_poison(p_prev_draft_lens, b_previous, rows_max) + 1
    b_stayed += load_or_poison(p_prev_valid_count, b_previous, rows_max)
    b_computed = load_or_poison(p_computed, b_previous, rows_max) + b_stayed
    b_host = tl.load(p_computed_host + o_row, mask=m_row & ~m_taken, other=0)
    # The values are in registers of all warps before any warp writes.
    tl.debug_barrier()
    tl.store(p_computed + o_row, tl.where(m_taken, b_computed, b_host), mask=m_row)


@triton.jit(do_not_specialize=["rows"])
def _select_accepted_kernel(
    p_accepted,  # [R_max] int32, written
    p_accepted_host,  # [R] int32, read
    p_count_source,  # [R] int32, read
    p_prev_valid_count,  # [R_max] int32, read
    rows,
    rows_max,
    BLOCK: tl.constexpr,
):
    o_row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m_row = o_row < rows
    b_previous = tl.load(p_count_source + o_row, mask=m_row, other=-1)
    m_taken = b_previous >= 0
    b_count = load_or_poison(p_prev_valid_count, b_previous, rows_max)
    b_host = tl.load(p_accepted_host + o_row, mask=m_row & ~m_taken, other=0)
    tl.store(p_accepted + o_row, tl.where(m_taken, b_count, b_host), mask=m_row)
