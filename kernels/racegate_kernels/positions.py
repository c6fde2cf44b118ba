"""Positions and sequence lengths from the computed token counts on the device."""

from __future__ import annotations

import numpy as np

from racegate_kernels._triton import tl, triton
from racegate_kernels.launch import assert_dense
from racegate_kernels.numerics import Array
from racegate_kernels.rows import row_span, token_rows

BLOCK = 128


def positions_eager(computed: Array, query_start: Array, positions: Array, seq_lens: Array) -> None:
    """positions[t] = computed[row] + index in row; seq_lens[r] = computed[r] + scheduled.

    computed: [R] int32, read
    query_start: [R + 1] int32, read
    positions: [T_max] int32, written whole, the tail with 0
    seq_lens: [R_max] int32, written whole, the tail with 0
    """
    row_of, index = token_rows(query_start)
    positions[: len(row_of)] = computed[row_of] + index
    positions[len(row_of) :] = 0
    seq_lens[: len(computed)] = computed + np.diff(query_start)
    seq_lens[len(computed) :] = 0


def positions_triton(
    computed: Array, query_start: Array, positions: Array, seq_lens: Array
) -> None:
    """The same on torch tensors."""
    assert_dense(computed, query_start, positions, seq_lens)
    rows = len(computed)
    _positions_kernel[(rows + 1,)](
        computed,
        query_start,
        positions,
        seq_lens,
        rows,
        len(positions),
        len(seq_lens),
        BLOCK=BLOCK,
    )


@triton.jit(do_not_specialize=["rows"])
def _positions_kernel(
    p_computed,  # [R] int32, read
    p_query_start,  # [R + 1] int32, read
    p_positions,  # [T_max] int32, written whole
    p_seq_lens,  # [R_max] int32, written whole
    rows,
    tokens_max,
    rows_max,
    BLOCK: tl.constexpr,
):
    """One program per row, and a last one for both tails."""
    i_row = tl.program_id(0)
    if i_row < rows:
        start, end = row_span(p_query_start, i_row, tokens_max)
        computed = tl.load(p_computed + i_row)
        scheduled = tl.load(p_query_start + i_row + 1) - tl.load(p_query_start + i_row)
        tl.store(p_seq_lens + i_row, computed + scheduled)
        i_first = start
        while i_first < end:
            o_t = i_first + tl.arange(0, BLOCK)
            tl.store(p_positions + o_t, computed + o_t - start, mask=o_t < end)
            i_first += BLOCK
    else:
        i_first = tl.maximum(tl.load(p_query_start + rows), 0)
        while i_first < tokens_max:
            o_t = i_first + tl.arange(0, BLOCK)
            tl.store(p_positions + o_t, 0, mask=o_t < tokens_max)
            i_first += BLOCK
        i_first = rows
        while i_first < rows_max:
            o_row = i_first + tl.arange(0, BLOCK)
            tl.store(p_seq_lens + o_row, 0, mask=o_row < rows_max)
            i_first += BLOCK
