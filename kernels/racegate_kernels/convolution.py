"""What both convolutions share: the inputs of a row in registers, and what its tokens make of them.

A program holds some channels of one row. An input is a vector over these channels, loaded once for
all the tokens that it reaches; a tuple of them has the oldest first.
"""

from __future__ import annotations

from racegate_kernels._triton import tl, triton
from racegate_kernels.numerics import act, widen

# Tokens whose inputs are loaded together, in a row that is longer than a decode row.
T_CHUNK = tl.constexpr(4)


@triton.jit
def load_columns(p_first, stride, m_c, COLUMNS: tl.constexpr, EXACT: tl.constexpr):
    """A tuple of [C]: columns that are so far apart, from the one at p_first [C] on."""
    columns = ()
    for column in tl.static_range(COLUMNS):
        b_column = tl.load(p_first + column * stride, mask=m_c, other=0)
        columns = columns + (widen(b_column, EXACT),)  # noqa: RUF005
    return columns


@triton.jit
def load_inputs(
    before,  # tuple of W - 1 [C]
    p_x_row,  # [C] pointers to the row's first input
    stride_x,
    i_first,
    length,
    m_c,
    TOKENS: tl.constexpr,
    EXACT: tl.constexpr,
):
    """before, and the inputs of so many tokens from i_first on; 0 behind the row's last one."""
    inputs = before
    for place in tl.static_range(TOKENS):
        i_t = i_first + place
        p_input = p_x_row + i_t.to(tl.int64) * stride_x
        b_input = tl.load(p_input, mask=tl.where(i_t < length, m_c, False), other=0)
        inputs = inputs + (widen(b_input, EXACT),)  # noqa: RUF005
    return inputs


@triton.jit
def convolve(
    inputs,  # tuple of W - 1 + TOKENS [C]
    weights,  # tuple of W [C]
    b_bias,  # [C]
    p_out,  # [C] pointers to the output of the first token
    stride_out,
    tokens,  # that there are
    m_c,
    WIDTH: tl.constexpr,
    TOKENS: tl.constexpr,
    EXACT: tl.constexpr,
):
    """Writes the outputs of at most TOKENS tokens."""
    for place in tl.static_range(TOKENS):
        if place < tokens:
            b_sum = inputs[place] * weights[0]
            for tap in tl.static_range(1, WIDTH):
                b_sum += inputs[place + tap] * weights[tap]
            tl.store(p_out + place * stride_out, act(b_sum + b_bias, EXACT), mask=m_c)


@triton.jit
def side_by_side(columns, FIRST: tl.constexpr, COUNT: tl.constexpr, LEVELS: tl.constexpr):
    """[C, 2 ** LEVELS]: COUNT columns from FIRST on, and behind them the last one again.

    In registers: a tile is then stored as whole lines of memory, which its columns are not.
    """
    tiles = ()
    for place in tl.static_range(2**LEVELS):
        tiles = tiles + (columns[FIRST + (place if place < COUNT else COUNT - 1)],)  # noqa: RUF005
    for level in tl.static_range(LEVELS):
        joined = ()
        for place in tl.static_range(2 ** (LEVELS - 1 - level)):
            b_pair = tl.join(tiles[place], tiles[place + 2 ** (LEVELS - 1 - level)])
            joined = joined + (b_pair,)  # noqa: RUF005
        tiles = joined
    return tl.reshape(tiles[0], (columns[0].shape[0], 2**LEVELS))


@triton.jit
def store_zeros(p_out, i_t, tokens, stride_out, m_c):
    """Outputs of tokens from i_t on."""
    while i_t < tokens:
        tl.store(p_out + i_t.to(tl.int64) * stride_out, 0, mask=m_c)
        i_t += 1
