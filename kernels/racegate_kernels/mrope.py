"""Position encoding of queries and keys with three coordinates per token: each rotary pair turns
with time, height or width (Wang et al. 2024). DEFINITION section 2.
"""

from __future__ import annotations

import numpy as np

from racegate_kernels._triton import tl, triton
from racegate_kernels.launch import (
    assert_dense,
    assert_row_major,
    cdiv,
    head_blocks,
    is_exact_tensor,
)
from racegate_kernels.numerics import POSITION, T_POSITION, Array, is_exact, mix, mix_eager, widen
from racegate_kernels.rotary import angles_eager, first_elements, turn_of, turned_eager

# Rotary pairs that turn with time, height and width.
Section = tuple[int, ...]


def mrope_eager(x: Array, mrope_positions: Array, *, section: Section) -> Array:
    """x encoded with the coordinates of its token; tokens behind the last row like any other.

    x: [T, H, P] uint32 or float32, read
    mrope_positions: [T, 3] int32, read
    section: three counts of pairs; they make the first elements of a head, which are encoded
    returns [T, H, P]
    """
    width = 2 * sum(section)
    if width < x.shape[-1]:
        return first_elements(x, mrope_eager(x[..., :width], mrope_positions, section=section))
    of_pair = np.repeat(mrope_positions, section, axis=1)
    if is_exact(x):
        turns = np.repeat(of_pair.astype(np.uint32) * POSITION, 2, axis=1)
        return mix_eager(x + turns[:, None, :])
    return turned_eager(x, angles_eager(of_pair, width=width))


def mrope_triton(x: Array, mrope_positions: Array, *, section: Section) -> Array:
    """The same on torch tensors."""
    tokens, heads, head_size = x.shape
    time, height, width = section
    assert time + height + width <= head_size // 2, f"{section=} {head_size=}"
    assert_row_major(x)
    assert_dense(mrope_positions)
    turned = x.new_empty(x.shape)
    block_h, block_p = head_blocks(heads, head_size)
    _mrope_kernel[(tokens, cdiv(heads, block_h))](
        x,
        mrope_positions,
        turned,
        x.stride(0),
        x.stride(1),
        HEADS=heads,
        HEAD_SIZE=head_size,
        WIDTH=2 * sum(section),
        TIME=time,
        HEIGHT=height,
        BLOCK_H=block_h,
        BLOCK_P=block_p,
        EXACT=is_exact_tensor(x),
    )
    return turned


@triton.jit
def _mrope_kernel(
    p_x,  # [T, H, P], read
    p_mrope_positions,  # [T, 3] int32, read
    p_turned,  # [T, H, P], written
    stride_x_t,
    stride_x_h,
    HEADS: tl.constexpr,
    HEAD_SIZE: tl.constexpr,
    WIDTH: tl.constexpr,
    TIME: tl.constexpr,
    HEIGHT: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_P: tl.constexpr,
    EXACT: tl.constexpr,
):
    i_t = tl.program_id(0).to(tl.int64)
    o_h = (tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H))[:, None]
    o_p = tl.arange(0, BLOCK_P)[None, :]
    m = (o_h < HEADS) & (o_p < HEAD_SIZE)
    b_x = tl.load(p_x + i_t * stride_x_t + o_h * stride_x_h + o_p, mask=m, other=0)
    b_x = widen(b_x, EXACT)
    p_place = p_mrope_positions + i_t * 3
    if EXACT:
        position = _coordinate(p_place, tl.arange(0, BLOCK_P) // 2, TIME, HEIGHT)[None, :]
        b_turned = mix(b_x + position.to(tl.uint32, bitcast=True) * T_POSITION)
    else:
        o_j = tl.arange(0, BLOCK_P // 2)
        cos, sin = turn_of(_coordinate(p_place, o_j, TIME, HEIGHT), o_j, WIDTH)
        b_even, b_odd = tl.split(tl.reshape(b_x, [BLOCK_H, BLOCK_P // 2, 2]))
        b_pair = tl.join(b_even * cos - b_odd * sin, b_even * sin + b_odd * cos)
        b_turned = tl.reshape(b_pair, [BLOCK_H, BLOCK_P])
    if WIDTH < HEAD_SIZE:
        b_turned = tl.where(o_p < WIDTH, b_turned, b_x)
    tl.store(p_turned + (i_t * HEADS + o_h) * HEAD_SIZE + o_p, b_turned, mask=m)


@triton.jit
def _coordinate(p_place, o_pair, TIME: tl.constexpr, HEIGHT: tl.constexpr):
    """The coordinate of a token that each pair turns with."""
    o_axis = tl.where(o_pair < TIME, 0, tl.where(o_pair < TIME + HEIGHT, 1, 2))
    return tl.load(p_place + o_axis)
