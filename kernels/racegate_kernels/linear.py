"""Linear map, with a bias if there is one."""

from __future__ import annotations

import numpy as np

from racegate_kernels._triton import tl, triton
from racegate_kernels.launch import (
    assert_dense,
    assert_row_major,
    block_of,
    cdiv,
    flat_rows,
    is_exact_tensor,
)
from racegate_kernels.numerics import Array, widen


def linear_eager(x: Array, weight: Array, bias: Array | None = None) -> Array:
    """x times the transposed weight, plus a bias; modulo 2^32 in exact.

    Tokens behind the last row are multiplied like any other. In float the vendor chooses the order
    of the sums by the number of tokens, so that padding may change the last bits of all of them.

    x: [..., D_in] uint32 or float32, read
    weight: [D_out, D_in]; bias: [D_out] same dtype, read
    returns [..., D_out]
    """
    product = np.matmul(x, weight.T)
    return product if bias is None else product + bias


def linear_triton(x: Array, weight: Array, bias: Array | None = None) -> Array:
    """The same on torch tensors; floats go to the vendor's matrix multiplication."""
    product = _launch_product(x, weight)
    # Bits of uint32 in int32 add up to the same bits.
    return product if bias is None else product + bias


def _launch_product(x: Array, weight: Array) -> Array:
    """[..., D_out]: x times the transposed weight. x: [..., D_in]; weight: [D_out, D_in]"""
    if not is_exact_tensor(x):
        return x @ weight.T
    size_out, size_in = weight.shape
    flat = flat_rows(x)
    assert_row_major(flat)
    assert_dense(weight)
    out = x.new_empty((*x.shape[:-1], size_out))
    block_out, block_in = block_of(size_out, most=64), block_of(size_in, most=64)
    _linear_kernel[(flat.shape[0], cdiv(size_out, block_out))](
        flat,
        weight,
        out,
        flat.stride(0),
        SIZE_IN=size_in,
        SIZE_OUT=size_out,
        BLOCK_IN=block_in,
        BLOCK_OUT=block_out,
    )
    return out


@triton.jit
def _linear_kernel(
    p_x,  # [T, D_in] int32, read
    p_weight,  # [D_out, D_in] int32, read
    p_out,  # [T, D_out] int32, written
    stride_x,
    SIZE_IN: tl.constexpr,
    SIZE_OUT: tl.constexpr,
    BLOCK_IN: tl.constexpr,
    BLOCK_OUT: tl.constexpr,
):
    """Exact only. Tensor cores have no 32-bit integers: this is a multiply-add per element."""
    i_t = tl.program_id(0).to(tl.int64)
    o_out = tl.program_id(1) * BLOCK_OUT + tl.arange(0, BLOCK_OUT)
    m_out = o_out < SIZE_OUT
    p_rows = p_weight + o_out.to(tl.int64)[:, None] * SIZE_IN
    b_sum = tl.zeros([BLOCK_OUT, BLOCK_IN], tl.uint32)
    for i_in in range(0, SIZE_IN, BLOCK_IN):
        o_in = i_in + tl.arange(0, BLOCK_IN)
        m_in = o_in < SIZE_IN
        b_x = tl.load(p_x + i_t * stride_x + o_in, mask=m_in, other=0)
        b_w = tl.load(p_rows + o_in[None, :], mask=m_out[:, None] & m_in[None, :], other=0)
        b_sum += widen(b_w, EXACT=True) * widen(b_x, EXACT=True)[None, :]
    tl.store(p_out + i_t * SIZE_OUT + o_out, tl.sum(b_sum, 1), mask=m_out)
