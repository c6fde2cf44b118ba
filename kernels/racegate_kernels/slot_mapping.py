"""Slot mapping: where in the paged cache each token's entry goes.

docs/mechanism.md#correction.
"""

from __future__ import annotations

import numpy as np

from racegate_kernels._triton import tl, triton
from racegate_kernels.launch import assert_dense, assert_row_major
from racegate_kernels.numerics import Array
from racegate_kernels.rows import row_span, token_rows

BLOCK = 128


def slot_mapping_eager(
    positions: Array,
    query_start: Array,
    block_table: Array,
    slot_mapping: Array,
    *,
    block_size: int,
) -> None:
    """slot[t] = block_table[row, position // block_size] * block_size + position % block_size.

    positions: [T_max] int32, read
    query_start: [R + 1] int32, read
    block_table: [R, M] int32, read; a position outside the table gives -1
    slot_mapping: [T_max] int32, written whole, behind the tokens with -1
    """
    row_of, _ = token_rows(query_start)
    position = positions[: len(row_of)]
    column = position // block_size
    inside = (position >= 0) & (column < block_table.shape[1])
    block = block_table[row_of, np.where(inside, column, 0)]
    slot_mapping[: len(row_of)] = np.where(inside, block * block_size + position % block_size, -1)
    slot_mapping[len(row_of) :] = -1


def slot_mapping_triton(
    positions: Array,
    query_start: Array,
    block_table: Array,
    slot_mapping: Array,
    *,
    block_size: int,
) -> None:
    """The same on torch tensors."""
    assert_dense(positions, query_start, slot_mapping)
    assert_row_major(block_table)
    rows = len(query_start) - 1
    _slot_mapping_kernel[(rows + 1,)](
        positions,
        query_start,
        block_table,
        slot_mapping,
        block_table.stride(0),
        block_table.shape[1],
        rows,
        len(slot_mapping),
        BLOCK_SIZE=block_size,
        BLOCK=BLOCK,
    )


@triton.jit(do_not_specialize=["rows", "tokens_max"])
def _slot_mapping_kernel(
    p_positions,  # [T_max] int32, read
    p_query_start,  # [R + 1] int32, read
    p_block_table,  # [R, M] int32, read
    p_slot_mapping,  # [T_max] int32, written whole
    stride_table,
    columns,
    rows,
    tokens_max,
    BLOCK_SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One program per row, and a last one for the tail."""
    i_row = tl.program_id(0)
    if i_row < rows:
        p_table_row = p_block_table + i_row.to(tl.int64) * stride_table
        i_first, end = row_span(p_query_start, i_row, tokens_max)
        while i_first < end:
            o_t = i_first + tl.arange(0, BLOCK)
            b_position = tl.load(p_positions + o_t, mask=o_t < end, other=-1)
            b_column = b_position // BLOCK_SIZE
            m_inside = (b_position >= 0) & (b_column < columns)
            b_block = tl.load(p_table_row + b_column, mask=m_inside, other=0)
            b_slot = b_block * BLOCK_SIZE + b_position % BLOCK_SIZE
            tl.store(p_slot_mapping + o_t, tl.where(m_inside, b_slot, -1), mask=o_t < end)
            i_first += BLOCK
    else:
        i_first = tl.maximum(tl.load(p_query_start + rows), 0)
        while i_first < tokens_max:
            o_t = i_first + tl.arange(0, BLOCK)
            tl.store(p_slot_mapping + o_t, -1, mask=o_t < tokens_max)
            i_first += BLOCK
