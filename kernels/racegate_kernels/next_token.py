"""Padded next-token preparation: next token, backup token and valid count per row.

docs/mechanism.md#accepted-counts and #backup-token.
"""

from __future__ import annotations

import numpy as np

from racegate_kernels._triton import tl, triton
from racegate_kernels.launch import assert_dense, assert_row_major, block_of, cdiv
from racegate_kernels.numerics import Array

BLOCK_R = 64


def next_token_eager(
    sampled: Array,
    discarded: Array,
    backup_token: Array,
    next_token: Array,
    valid_count: Array,
    *,
    vocab_size: int,
    mask_discarded: int,
) -> None:
    """next = last valid token, or the backup token for discarded rows and rows without one.

    sampled: [R, 1 + K] int32, read
    discarded: [R] int32, read; 1 where the chunk does not reach the last known token
    backup_token: [R] int32, read
    next_token, valid_count: [R] int32, written
    mask_discarded: 1 counts discarded rows as 0; 0 (extract_hidden_states) keeps their count
    """
    valid = (sampled >= 0) & (sampled < vocab_size)
    count = valid.sum(axis=1)
    last = sampled.shape[1] - 1 - valid[:, ::-1].argmax(axis=1)
    token = sampled[np.arange(len(sampled)), last]
    drop = discarded != 0
    next_token[...] = np.where(drop | (count == 0), backup_token, token)
    valid_count[...] = np.where(drop & (mask_discarded == 1), 0, count)


def next_token_triton(
    sampled: Array,
    discarded: Array,
    backup_token: Array,
    next_token: Array,
    valid_count: Array,
    *,
    vocab_size: int,
    mask_discarded: int,
) -> None:
    """The same on torch tensors."""
    assert_row_major(sampled)
    assert_dense(discarded, backup_token, next_token, valid_count)
    rows, columns = sampled.shape
    _next_token_kernel[(cdiv(rows, BLOCK_R),)](
        sampled,
        discarded,
        backup_token,
        next_token,
        valid_count,
        sampled.stride(0),
        rows,
        vocab_size,
        COLUMNS=columns,
        MASK_DISCARDED=mask_discarded == 1,
        BLOCK_R=BLOCK_R,
        BLOCK_K=block_of(columns),
    )


@triton.jit(do_not_specialize=["rows"])
def _next_token_kernel(
    p_sampled,  # [R, 1 + K] int32, read
    p_discarded,  # [R] int32, read
    p_backup_token,  # [R] int32, read
    p_next_token,  # [R] int32, written
    p_valid_count,  # [R] int32, written
    stride_sampled,
    rows,
    vocab_size,
    COLUMNS: tl.constexpr,
    MASK_DISCARDED: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    o_row = tl.program_id(0).to(tl.int64) * BLOCK_R + tl.arange(0, BLOCK_R)
    o_k = tl.arange(0, BLOCK_K)[None, :]
    m_row = o_row < rows
    p = p_sampled + o_row[:, None] * stride_sampled + o_k
    b_sampled = tl.load(p, mask=m_row[:, None] & (o_k < COLUMNS), other=-1)
    m_valid = (b_sampled >= 0) & (b_sampled < vocab_size)
    b_count = tl.sum(m_valid.to(tl.int32), 1)
    b_last = tl.max(tl.where(m_valid, o_k, -1), 1)
    b_token = tl.sum(tl.where(o_k == b_last[:, None], b_sampled, 0), 1)
    m_drop = tl.load(p_discarded + o_row, mask=m_row, other=0) != 0
    b_backup = tl.load(p_backup_token + o_row, mask=m_row, other=0)
    b_next = tl.where(m_drop | (b_count == 0), b_backup, b_token)
    if MASK_DISCARDED:
        b_count = tl.where(m_drop, 0, b_count)
    tl.store(p_next_token + o_row, b_next, mask=m_row)
    tl.store(p_valid_count + o_row, b_count, mask=m_row)
