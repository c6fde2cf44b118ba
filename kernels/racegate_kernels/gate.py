"""Output gate of the recurrent layers."""

from __future__ import annotations

from racegate_kernels._triton import tl, triton
from racegate_kernels.launch import (
    BLOCK_ELEMENTS,
    assert_row_major,
    block_of,
    cdiv,
    is_exact_tensor,
)
from racegate_kernels.numerics import Array, gated, is_exact, mix_eager, sigmoid_eager, widen


def gate_eager(y: Array, z: Array) -> Array:
    """mix(y + mix(z)) in exact, y * SiLU(z) in float; tokens behind the last row like others.

    y, z: [T, HP] uint32 or float32, read
    returns [T, HP]
    """
    if is_exact(y):
        return mix_eager(y + mix_eager(z))
    return y * z * sigmoid_eager(z)


def gate_triton(y: Array, z: Array) -> Array:
    """The same on torch tensors."""
    assert_row_major(y, z)
    tokens, size = y.shape
    out = y.new_empty((tokens, size))
    block_d = block_of(size, most=1024)
    block_t = BLOCK_ELEMENTS // block_d
    _gate_kernel[(cdiv(tokens, block_t), cdiv(size, block_d))](
        y,
        z,
        out,
        y.stride(0),
        z.stride(0),
        tokens,
        SIZE=size,
        BLOCK_T=block_t,
        BLOCK_D=block_d,
        EXACT=is_exact_tensor(y),
    )
    return out


@triton.jit(do_not_specialize=["tokens"])
def _gate_kernel(
    p_y,  # [T, HP], read
    p_z,  # [T, HP], read
    p_out,  # [T, HP], written
    stride_y,
    stride_z,
    tokens,
    SIZE: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_D: tl.constexpr,
    EXACT: tl.constexpr,
):
    o_t = (tl.program_id(0).to(tl.int64) * BLOCK_T + tl.arange(0, BLOCK_T))[:, None]
    o_d = (tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D))[None, :]
    m = (o_t < tokens) & (o_d < SIZE)
    b_y = widen(tl.load(p_y + o_t * stride_y + o_d, mask=m, other=0), EXACT)
    b_z = widen(tl.load(p_z + o_t * stride_z + o_d, mask=m, other=0), EXACT)
    tl.store(p_out + o_t * SIZE + o_d, gated(b_y, b_z, EXACT), mask=m)
