"""Position encoding of queries and keys: a mixer in exact, rotary in float (Su et al. 2021).

DEFINITION section 2.
"""

from __future__ import annotations

import math

import numpy as np

from racegate_kernels._triton import tl, triton
from racegate_kernels.launch import (
    assert_dense,
    assert_row_major,
    cdiv,
    head_blocks,
    is_exact_tensor,
)
from racegate_kernels.numerics import (
    POSITION,
    T_POSITION,
    Array,
    is_exact,
    mix,
    mix_eager,
    widen,
)

BASE = 10000.0
T_BASE_LOG2 = tl.constexpr(math.log2(BASE))
T_TURN = tl.constexpr(2 * math.pi)


def rotary_eager(x: Array, positions: Array, *, width: int | None = None) -> Array:
    """x encoded with the position of its token; tokens behind the last row like any other.

    x: [T, H, P] uint32 or float32, read
    positions: [T] int32, read
    width: the first elements of a head, which are encoded; all by default
    returns [T, H, P]
    """
    if width is not None and width < x.shape[-1]:
        return first_elements(x, rotary_eager(x[..., :width], positions))
    if is_exact(x):
        return mix_eager(x + (positions.astype(np.uint32) * POSITION)[:, None, None])
    return turned_eager(x, angles_eager(positions[:, None], width=x.shape[-1]))


def first_elements(x: Array, encoded: Array) -> Array:
    """[T, H, P]: x with its first elements replaced. x: [T, H, P]; encoded: [T, H, R]"""
    whole = x.copy()
    whole[..., : encoded.shape[-1]] = encoded
    return whole


def angles_eager(
    positions: Array,  # [T, 1] or [T, R / 2] int32, of all pairs or of each
    *,
    width: int,
) -> Array:
    """[T, R / 2] float64"""
    frequency = BASE ** (-2.0 * np.arange(width // 2) / width)
    return np.asarray(positions * frequency)


def turned_eager(
    x: Array,  # [T, H, P] float32
    angle: Array,  # [T, P / 2] float64
) -> Array:
    """[T, H, P]: x with each pair turned by its angle."""
    cos = np.cos(angle).astype(np.float32)[:, None, :]
    sin = np.sin(angle).astype(np.float32)[:, None, :]
    even, odd = x[..., 0::2], x[..., 1::2]
    turned = np.empty_like(x)
    turned[..., 0::2] = even * cos - odd * sin
    turned[..., 1::2] = even * sin + odd * cos
    return turned


def rotary_triton(x: Array, positions: Array, *, width: int | None = None) -> Array:
    """The same on torch tensors."""
    tokens, heads, head_size = x.shape
    width = head_size if width is None else width
    exact = is_exact_tensor(x)
    assert exact or head_size % 2 == 0 == width % 2, f"{head_size=} {width=}"
    assert_row_major(x)
    assert_dense(positions)
    turned = x.new_empty(x.shape)
    block_h, block_p = head_blocks(heads, head_size)
    _rotary_kernel[(tokens, cdiv(heads, block_h))](
        x,
        positions,
        turned,
        x.stride(0),
        x.stride(1),
        HEADS=heads,
        HEAD_SIZE=head_size,
        WIDTH=width,
        BLOCK_H=block_h,
        BLOCK_P=block_p,
        EXACT=exact,
    )
    return turned


@triton.jit
def _rotary_kernel(
    p_x,  # [T, H, P], read
    p_positions,  # [T] int32, read
    p_turned,  # [T, H, P], written
    stride_x_t,
    stride_x_h,
    HEADS: tl.constexpr,
    HEAD_SIZE: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_P: tl.constexpr,
    EXACT: tl.constexpr,
):
    i_t = tl.program_id(0).to(tl.int64)
    o_h = (tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H))[:, None]
    o_p = tl.arange(0, BLOCK_P)[None, :]
    m = (o_h < HEADS) & (o_p < HEAD_SIZE)
    position = tl.load(p_positions + i_t)
    b_x = tl.load(p_x + i_t * stride_x_t + o_h * stride_x_h + o_p, mask=m, other=0)
    b_x = widen(b_x, EXACT)
    if EXACT:
        b_turned = mix(b_x + position.to(tl.uint32, bitcast=True) * T_POSITION)
    else:
        cos, sin = turn_of(position, tl.arange(0, BLOCK_P // 2), WIDTH)
        b_even, b_odd = tl.split(tl.reshape(b_x, [BLOCK_H, BLOCK_P // 2, 2]))
        b_pair = tl.join(b_even * cos - b_odd * sin, b_even * sin + b_odd * cos)
        b_turned = tl.reshape(b_pair, [BLOCK_H, BLOCK_P])
    if WIDTH < HEAD_SIZE:
        b_turned = tl.where(o_p < WIDTH, b_turned, b_x)
    tl.store(p_turned + (i_t * HEADS + o_h) * HEAD_SIZE + o_p, b_turned, mask=m)


@triton.jit
def turn_of(position, o_j, WIDTH: tl.constexpr):
    """Cosine and sine [1, P / 2] of a token's angles. position: of all pairs, or [P / 2] of each

    Whole turns are taken off in float64: at position 100,000 a float32 angle is off by 0.004.
    """
    turns_per_position = tl.exp2(o_j.to(tl.float64) * (-2.0 * T_BASE_LOG2 / WIDTH)) / T_TURN
    turns = position.to(tl.float64) * turns_per_position
    angle = ((turns - tl.floor(turns)) * T_TURN).to(tl.float32)[None, :]
    return tl.cos(angle), tl.sin(angle)
