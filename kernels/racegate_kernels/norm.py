"""Norm: the bit mixer in exact, RMS norm in float (Zhang and Sennrich 2019).

DEFINITION section 1.
"""

from __future__ import annotations

import numpy as np

from racegate_kernels._triton import tl, triton
from racegate_kernels.launch import (
    BLOCK_ELEMENTS,
    assert_dense,
    assert_row_major,
    cdiv,
    flat_rows,
    is_exact_tensor,
    power_of_two,
)
from racegate_kernels.numerics import Array, is_exact, mix, mix_eager, widen

EPSILON = 1e-6
T_EPSILON = tl.constexpr(EPSILON)


def norm_eager(x: Array, weight: Array | None = None, *, groups: int = 1) -> Array:
    """The norm over the last dimension, or over each of its groups, times a weight if there is one.

    Every token is normed by itself: those behind the last row change no other.

    x: [..., D] uint32 or float32, read
    weight: [D] same dtype, read
    returns [..., D]
    """
    if is_exact(x):
        normed = mix_eager(x)
    else:
        grouped = x.reshape(*x.shape[:-1], groups, x.shape[-1] // groups)
        square = np.mean(grouped * grouped, axis=-1, keepdims=True)
        normed = (grouped / np.sqrt(square + np.float32(EPSILON))).reshape(x.shape)
    return normed if weight is None else normed * weight


def head_norm_eager(x: Array, weight: Array | None = None) -> Array:
    """The norm over each head in float, the identity in exact (the gate behind it mixes), times a
    weight if there is one.

    Tokens behind the last row change no other.

    x: [T, H, P] uint32 or float32, read
    weight: [P] same dtype, read
    returns [T, H, P]
    """
    if not is_exact(x):
        return norm_eager(x, weight)
    return x if weight is None else x * weight


def norm_triton(x: Array, weight: Array | None = None, *, groups: int = 1) -> Array:
    """The same on torch tensors."""
    size = x.shape[-1] // groups
    flat = flat_rows(x) if groups == 1 else x.reshape(-1, size)
    assert_row_major(flat)
    if weight is not None:
        assert_dense(weight)
    rows = flat.shape[0]
    normed = x.new_empty(x.shape)
    block_d = power_of_two(size)
    block_rows = max(1, BLOCK_ELEMENTS // block_d)
    _norm_kernel[(cdiv(rows, block_rows),)](
        flat,
        flat if weight is None else weight,
        normed,
        flat.stride(0),
        rows,
        SIZE=size,
        GROUPS=groups,
        WEIGHTED=weight is not None,
        BLOCK_ROWS=block_rows,
        BLOCK_D=block_d,
        EXACT=is_exact_tensor(x),
        num_warps=4 if block_d <= BLOCK_ELEMENTS else 16,
    )
    return normed


def head_norm_triton(x: Array, weight: Array | None = None) -> Array:
    """The same on torch tensors."""
    if not is_exact_tensor(x):
        return norm_triton(x, weight)
    return x if weight is None else x * weight


@triton.jit(do_not_specialize=["rows"])
def _norm_kernel(
    p_x,  # [rows, D], read
    p_weight,  # [groups * D], read if weighted
    p_normed,  # [rows, D], written
    stride_x,
    rows,
    SIZE: tl.constexpr,
    GROUPS: tl.constexpr,
    WEIGHTED: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_D: tl.constexpr,
    EXACT: tl.constexpr,
):
    o_row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    o_d = tl.arange(0, BLOCK_D)
    m = (o_row < rows)[:, None] & (o_d < SIZE)[None, :]
    b_x = widen(tl.load(p_x + o_row[:, None] * stride_x + o_d[None, :], mask=m, other=0), EXACT)
    if EXACT:
        b_normed = mix(b_x)
    else:
        b_normed = b_x / tl.sqrt(tl.sum(b_x * b_x, 1) / SIZE + T_EPSILON)[:, None]
    if WEIGHTED:
        p_group = p_weight + (o_row % GROUPS)[:, None] * SIZE
        b_normed *= widen(tl.load(p_group + o_d[None, :], mask=m, other=0), EXACT)
    tl.store(p_normed + o_row[:, None] * SIZE + o_d[None, :], b_normed, mask=m)
