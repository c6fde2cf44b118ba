"""Accepted token count: how many tokens a row emitted.

docs/mechanism.md#accepted-counts.
"""

from __future__ import annotations

from racegate_kernels._triton import tl, triton
from racegate_kernels.launch import assert_dense, assert_row_major, block_of, cdiv
from racegate_kernels.numerics import Array

BLOCK_R = 64


def accepted_count_eager(sampled: Array, accepted: Array) -> None:
    """The number of entries of each row that are not -1.

    sampled: [R, 1 + K] int32, read
    accepted: [R] int32, written
    """
    accepted[...] = (sampled != -1).sum(axis=1)


def accepted_count_first_hole_eager(sampled: Array, accepted: Array) -> None:
    """The index of each row's first -1.

    The earlier formula, equal on every row that is a valid prefix (vllm#38372).

    sampled: [R, 1 + K] int32, read
    accepted: [R] int32, written
    """
    holes = sampled == -1
    accepted[...] = holes.argmax(axis=1)
    accepted[~holes.any(axis=1)] = sampled.shape[1]


def accepted_count_triton(sampled: Array, accepted: Array) -> None:
    """The same on torch tensors."""
    _launch(sampled, accepted, first_hole=False)


def accepted_count_first_hole_triton(sampled: Array, accepted: Array) -> None:
    """The same on torch tensors."""
    _launch(sampled, accepted, first_hole=True)


def _launch(sampled: Array, accepted: Array, *, first_hole: bool) -> None:
    assert_row_major(sampled)
    assert_dense(accepted)
    rows, columns = sampled.shape
    _accepted_count_kernel[(cdiv(rows, BLOCK_R),)](
        sampled,
        accepted,
        sampled.stride(0),
        rows,
        COLUMNS=columns,
        BLOCK_R=BLOCK_R,
        BLOCK_K=block_of(columns),
        FIRST_HOLE=first_hole,
    )


@triton.jit(do_not_specialize=["rows"])
def _accepted_count_kernel(
    p_sampled,  # [R, 1 + K] int32, read
    p_accepted,  # [R] int32, written
    stride_sampled,
    rows,
    COLUMNS: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_K: tl.constexpr,
    FIRST_HOLE: tl.constexpr,
):
    o_row = tl.program_id(0).to(tl.int64) * BLOCK_R + tl.arange(0, BLOCK_R)
    o_k = tl.arange(0, BLOCK_K)
    m = (o_row < rows)[:, None] & (o_k < COLUMNS)[None, :]
    p = p_sampled + o_row[:, None] * stride_sampled + o_k[None, :]
    b_sampled = tl.load(p, mask=m, other=-1)
    if FIRST_HOLE:
        b_count = tl.min(tl.where((b_sampled == -1) & m, o_k[None, :], COLUMNS), 1)
    else:
        b_count = tl.sum((b_sampled != -1).to(tl.int32), 1)
    tl.store(p_accepted + o_row, b_count, mask=o_row < rows)
