"""Norm: the bit mixer in exact, RMS norm in float (Zhang and Sennrich 2019).

DEFINITION section 1.
"""

from __future__ import annotations

import numpy as np

from racegate_kernels._triton import tl, triton
from racegate_kernels.launch import (
    BLOCK_ELEMENTS,
    assert_row_major,
    cdiv,
    flat_rows,
    is_exact_tensor,
    power_of_two,
)
from racegate_kernels.numerics import Array, is_exact, mix, mix_eager, widen

EPSILON = 1e-6
T_EPSILON = tl.constexpr(EPSILON)


def norm_eager(x: Array) -> Array:
    """The norm over the last dimension.

    Every token is normed by itself: those behind the last row change no other.

    x: [..., D] uint32 or float32, read
    returns [..., D]
    """
    if is_exact(x):
        return mix_eager(x)
    scale = np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(EPSILON))
    return x / scale


def head_norm_eager(x: Array) -> Array:
    """The norm over each head in float, the identity in exact (the gate behind it mixes).

    Tokens behind the last row change no other.

    x: [T, H, P] uint32 or float32, read
    returns [T, H, P]
    """
    return x if is_exact(x) else norm_eager(x)


def norm_triton(x: Array) -> Array:
    """The same on torch tensors."""
    size = x.shape[-1]
    flat = flat_rows(x)
    assert_row_major(flat)
    rows = flat.shape[0]
    normed = x.new_empty(x.shape)
    block_d = power_of_two(size)
    block_rows = max(1, BLOCK_ELEMENTS // block_d)
    _norm_kernel[(cdiv(rows, block_rows),)](
        flat,
        normed,
        flat.stride(0),
        rows,
        SIZE=size,
        BLOCK_ROWS=block_rows,
        BLOCK_D=block_d,
        EXACT=is_exact_tensor(x),
        num_warps=4 if block_d <= BLOCK_ELEMENTS else 16,
    )
    return normed


def head_norm_triton(x: Array) -> Array:
    """The same on torch tensors."""
    return x if is_exact_tensor(x) else norm_triton(x)


@triton.jit(do_not_specialize=["rows"])
def _norm_kernel(
    p_x,  # [rows, D], read
    p_normed,  # [rows, D], written
    stride_x,
    rows,
    SIZE: tl.constexpr,
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
    tl.store(p_normed + o_row[:, None] * SIZE + o_d[None, :], b_normed, mask=m)
