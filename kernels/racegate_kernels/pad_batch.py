"""Padding of a batch to the size of a captured graph: what stands behind the batch names nothing.

docs/mechanism.md#graphs. The launchers never copy a number from the host: that would wait for the
stream.
"""

from __future__ import annotations

import numpy as np

from racegate_kernels._triton import tl, triton
from racegate_kernels.launch import assert_dense, assert_row_major, cdiv
from racegate_kernels.numerics import Array

BLOCK = 128


def pad_tokens_eager(
    query_start: Array,
    input_ids: Array,
    *,
    row: int,
    row_end: int,
    token: int,
    token_end: int,
    stride: int,
) -> None:
    """Pad rows begin at `token`, `stride` apart; pad tokens are token 0.

    query_start: [R_max + 1] int32, written from `row` to `row_end`
    input_ids: [T_max] int32, written from `token` to before `token_end`
    """
    query_start[row : row_end + 1] = token + stride * np.arange(row_end + 1 - row)
    input_ids[token:token_end] = 0


def pad_tokens_triton(
    query_start: Array,
    input_ids: Array,
    *,
    row: int,
    row_end: int,
    token: int,
    token_end: int,
    stride: int,
) -> None:
    """The same on torch tensors."""
    assert_dense(query_start, input_ids)
    length = max(row_end + 1 - row, token_end - token, 1)
    _pad_tokens_kernel[(cdiv(length, BLOCK),)](
        query_start, input_ids, row, row_end, token, token_end, stride, BLOCK=BLOCK
    )


@triton.jit(do_not_specialize=["row", "row_end", "token", "token_end", "stride"])
def _pad_tokens_kernel(
    p_query_start,  # [R_max + 1] int32, written from `row` to `row_end`
    p_input_ids,  # [T_max] int32, written from `token` to before `token_end`
    row,
    row_end,
    token,
    token_end,
    stride,
    BLOCK: tl.constexpr,
):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(p_query_start + row + o, token + stride * o, mask=row + o <= row_end)
    tl.store(p_input_ids + token + o, 0, mask=token + o < token_end)


def pad_rows_eager(
    block_table: Array,
    window_table: Array,
    accepted: Array,
    computed: Array,
    *,
    row: int,
    row_end: int,
) -> None:
    """What selects the states and cache entries of pad rows: null blocks and count 1.

    block_table: [R_max, M]; window_table: [R_max, C] int32, written from `row` to before `row_end`
    accepted, computed: [R_max] int32, the same
    """
    block_table[row:row_end] = 0
    window_table[row:row_end] = 0
    accepted[row:row_end] = 1
    computed[row:row_end] = 0


def pad_rows_triton(
    block_table: Array,
    window_table: Array,
    accepted: Array,
    computed: Array,
    *,
    row: int,
    row_end: int,
) -> None:
    """The same on torch tensors."""
    assert_row_major(block_table, window_table)
    assert_dense(accepted, computed)
    columns, window_columns = block_table.shape[1], window_table.shape[1]
    _pad_rows_kernel[(max(row_end - row, 0),)](
        block_table,
        window_table,
        accepted,
        computed,
        block_table.stride(0),
        window_table.stride(0),
        columns,
        window_columns,
        row,
        BLOCK=BLOCK,
    )


@triton.jit(do_not_specialize=["row"])
def _pad_rows_kernel(
    p_block_table,  # [R_max, M] int32, a row written
    p_window_table,  # [R_max, C] int32, a row written
    p_accepted,  # [R_max] int32, an element written
    p_computed,  # [R_max] int32, an element written
    stride_blocks,
    stride_windows,
    columns,
    window_columns,
    row,
    BLOCK: tl.constexpr,
):
    """One program per pad row."""
    i_row = (row + tl.program_id(0)).to(tl.int64)
    i_first = 0
    while i_first < tl.maximum(columns, window_columns):
        o = i_first + tl.arange(0, BLOCK)
        tl.store(p_block_table + i_row * stride_blocks + o, 0, mask=o < columns)
        tl.store(p_window_table + i_row * stride_windows + o, 0, mask=o < window_columns)
        i_first += BLOCK
    tl.store(p_accepted + i_row, 1)
    tl.store(p_computed + i_row, 0)
