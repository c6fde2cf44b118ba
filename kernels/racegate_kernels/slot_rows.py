"""Rows of tables that requests keep in slots: gathered into a step's batch, and scattered back.

What the host has changed of a table comes as a list of slots and their new rows; a kernel reads
that list, from pinned memory too, and writes the table.
"""

from __future__ import annotations

import numpy as np

from racegate_kernels._triton import tl, triton
from racegate_kernels.launch import assert_dense, block_of, cdiv, is_exact_tensor
from racegate_kernels.numerics import Array
from racegate_kernels.poison import T_POISON_I32
from racegate_kernels.rows import gather_eager


def gather_rows_eager(table: Array, slots: Array, rows: Array) -> None:
    """rows[i] = table[slots[i]]; poison for a slot outside.

    table: [S, ...] int32, uint32 or float32, read; slots: [R] int32, read
    rows: [R, ...] of the table's dtype, written
    """
    rows[...] = gather_eager(table, slots)


def scatter_rows_eager(table: Array, slots: Array, rows: Array) -> None:
    """table[slots[i]] = rows[i]; slots outside take nothing, one that stands twice the last of its
    rows: what a kernel leaves must not hang on the order of its programs.

    table: [S, ...] int32, uint32 or float32, written; slots: [R] int32, read
    rows: [R, ...] of the table's dtype, read
    """
    inside = np.flatnonzero((slots >= 0) & (slots < len(table)))
    table[slots[inside]] = rows[inside]


def gather_rows_triton(table: Array, slots: Array, rows: Array) -> None:
    """The same on torch tensors."""
    _launch(_gather_rows_kernel, table, slots, rows, IS_FLOAT=not is_exact_tensor(table))


def scatter_rows_triton(table: Array, slots: Array, rows: Array) -> None:
    """The same on torch tensors."""
    _launch(_scatter_rows_kernel, table, slots, rows, rows_max=len(slots), LATER=32)


def _launch(kernel: Array, table: Array, slots: Array, rows: Array, **options: int) -> None:
    assert_dense(table, slots, rows)
    size = rows[0].numel() if len(rows) else 0
    if not size:
        return
    block = block_of(size)
    grid = (len(slots), cdiv(size, block))
    kernel[grid](table, slots, rows, len(table), SIZE=size, BLOCK=block, **options)


@triton.jit(do_not_specialize=["slots_max"])
def _gather_rows_kernel(
    p_table,  # [S, ...], read
    p_slots,  # [R] int32, read
    p_rows,  # [R, ...], written
    slots_max,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
    IS_FLOAT: tl.constexpr,
):
    """One program per row and part of it."""
    i_row = tl.program_id(0).to(tl.int64)
    i_slot = tl.load(p_slots + i_row).to(tl.int64)
    o = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    m_inside = tl.where((i_slot >= 0) & (i_slot < slots_max), o < SIZE, False)
    b = tl.load(
        p_table + i_slot * SIZE + o, mask=m_inside, other=float("nan") if IS_FLOAT else T_POISON_I32
    )
    tl.store(p_rows + i_row * SIZE + o, b, mask=o < SIZE)


@triton.jit(do_not_specialize=["slots_max", "rows_max"])
def _scatter_rows_kernel(
    p_table,  # [S, ...], written
    p_slots,  # [R] int32, read
    p_rows,  # [R, ...], read
    slots_max,
    rows_max,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
    LATER: tl.constexpr,
):
    """One program per row and part of it. LATER: so many of the rows behind it are asked at once"""
    i_row = tl.program_id(0).to(tl.int64)
    i_slot = tl.load(p_slots + i_row).to(tl.int64)
    o = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    m_inside = tl.where((i_slot >= 0) & (i_slot < slots_max), o < SIZE, False)
    n_later = 0
    i_later = i_row + 1
    while i_later < rows_max:
        o_later = i_later + tl.arange(0, LATER)
        b_later = tl.load(p_slots + o_later, mask=o_later < rows_max, other=-1)
        n_later += tl.sum((b_later == i_slot).to(tl.int32))
        i_later += LATER
    m_inside = tl.where(n_later == 0, m_inside, False)
    b = tl.load(p_rows + i_row * SIZE + o, mask=m_inside, other=0)
    tl.store(p_table + i_slot * SIZE + o, b, mask=m_inside)
