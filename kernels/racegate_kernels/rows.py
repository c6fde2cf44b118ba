"""What kernels share: which row and place a token has, and the state window of a row.

A replayed graph has a fixed number of tokens and rows. Its last rows may have no token, and tokens
behind query_start[R] no row: their outputs are 0 and they change nothing.
"""

from __future__ import annotations

import numpy as np

from racegate_kernels._triton import tl, triton
from racegate_kernels.numerics import widen
from racegate_kernels.poison import T_POISON_U32, poison_of

# Rows a token looks at together when it looks for its own; a constant, so that no batch size
# compiles a new kernel.
T_ROW_BLOCK = tl.constexpr(128)


def token_rows(query_start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For query_start [R + 1]: the row of each token [T] and its index within the row [T]."""
    lengths = np.diff(query_start)
    row_of = np.repeat(np.arange(len(lengths)), lengths)
    return row_of, np.arange(len(row_of)) - query_start[row_of]


def zeros_behind(out: np.ndarray, tokens: int) -> np.ndarray:
    """out [T of the rows, ...] followed by zeros for the tokens behind the last row."""
    padded = np.zeros((tokens, *out.shape[1:]), out.dtype)
    padded[: len(out)] = out
    return padded


def gather_eager(values: np.ndarray, index: np.ndarray) -> np.ndarray:
    """values[index] along the first axis; poison for an index outside.

    values: [N, ...], any dtype; index: any shape, int32 or int64
    """
    inside = (index >= 0) & (index < len(values))
    if inside.all():
        return values[index]
    gathered = values[np.where(inside, index, 0)]
    gathered[~inside] = poison_of(values.dtype)
    return gathered


def live_state(
    state: np.ndarray,
    table: np.ndarray,
    accepted: np.ndarray,
    computed: np.ndarray,
    *,
    poison: object,
) -> np.ndarray:
    """The state each row starts from: column accepted - 1 of its window, or zeros at the start.

    state: [B, ...] uint32 or float32; table: [R, 1 + K] int32; accepted, computed: [R] int32
    A column outside the window, or a block that is null or outside the pool, reads poison. A row
    with nothing computed starts from zeros.
    """
    rows = np.arange(len(table))
    column = accepted - 1
    inside = (column >= 0) & (column < table.shape[1])
    block = table[rows, np.where(inside, column, 0)]
    inside &= (block > 0) & (block < len(state))
    start = state[np.where(inside, block, 0)]
    if not inside.all():
        start[~inside] = poison
    start[computed <= 0] = 0
    return start


def store_states(
    state: np.ndarray,
    stepped: np.ndarray,
    table: np.ndarray,
    query_start: np.ndarray,
    is_decode: np.ndarray,
) -> None:
    """Writes the states after each token to their columns of the window.

    state: [B, ...] uint32 or float32, written; stepped: [T, ...] the state after each token
    table: [R, 1 + K] int32; query_start: [R + 1] int32; is_decode: [R] int32
    A decode row keeps the state after token t in column t, a prefill row only its last state, in
    column 0.
    """
    row_of, index = token_rows(query_start)
    decode = is_decode[row_of] != 0
    is_last = index == np.diff(query_start)[row_of] - 1
    column = np.where(decode, index, 0)
    kept = (decode | is_last) & (column < table.shape[1])
    block = np.where(kept, table[row_of, np.where(kept, column, 0)], 0)
    kept &= (block > 0) & (block < len(state))
    state[block[kept]] = stepped[kept]


@triton.jit
def begin(EARLY: tl.constexpr):
    """Waits for the kernel before, with all that it wrote, and lets the next one take its place in
    the same way: what a launch takes is then hidden.
    """
    if EARLY:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def row_span(p_query_start, i_row, tokens):
    """First token and end of a row, never outside buffers of this many tokens."""
    start = tl.maximum(tl.load(p_query_start + i_row), 0)
    end = tl.minimum(tl.load(p_query_start + i_row + 1), tokens)
    return start, end


@triton.jit
def first_behind(i_row, rows, end, tokens):
    """First token behind the last row, which that row's programs set to 0; others have none."""
    return tl.where(i_row == rows - 1, tl.maximum(end, 0), tokens)


@triton.jit
def row_of_token(p_query_start, i_t, rows):
    """The row of a token: the number of rows that end at or before it (all, behind the last)."""
    i_row = i_t * 0
    i_first = i_t * 0
    while i_first < rows:
        o_row = i_first + tl.arange(0, T_ROW_BLOCK)
        b_end = tl.load(p_query_start + o_row + 1, mask=o_row < rows, other=0)
        i_row += tl.sum(((b_end <= i_t) & (o_row < rows)).to(tl.int32), 0)
        i_first += T_ROW_BLOCK
    return i_row


@triton.jit
def column_block(p_table_row, i_column, columns, blocks):
    """The block in a column of a row's table; 0, the null block, if either is outside."""
    m_column = (i_column >= 0) & (i_column < columns)
    i_block = tl.load(p_table_row + i_column, mask=m_column, other=0)
    return tl.where((i_block > 0) & (i_block < blocks), i_block, 0).to(tl.int64)


@triton.jit
def live_block(p_table_row, p_accepted, columns, blocks, BLOCK_COLUMNS: tl.constexpr):
    """The block in column accepted - 1. The whole row of the table is read, because one column of
    it would have to wait for the count.
    """
    o_c = tl.arange(0, BLOCK_COLUMNS)
    b_row = tl.load(p_table_row + o_c, mask=o_c < columns, other=0)
    i_block = tl.sum(tl.where(o_c == tl.load(p_accepted) - 1, b_row, 0), 0)
    return tl.where((i_block > 0) & (i_block < blocks), i_block, 0).to(tl.int64)


@triton.jit
def kept_block(p_table_row, i_t, i_first, end, m_decode, columns, blocks):
    """Where the state after a token is kept: a decode row keeps each in a column of its own, a
    prefill row its last one in column 0; 0 for the others.
    """
    m_kept = (i_t < end) & (m_decode | (i_t + 1 == end))
    i_column = tl.where(m_decode, i_t - i_first, 0)
    return column_block(p_table_row, tl.where(m_kept, i_column, -1), columns, blocks)


@triton.jit
def load_live_state(
    p_tile,
    m_tile,
    i_block,
    stride_block,
    computed,
    WHOLE: tl.constexpr,  # whether the tile has no columns beside the state
    EVICTION: tl.constexpr,
    EXACT: tl.constexpr,
):
    """The tile a row starts from: poison without a block, zeros where nothing is computed."""
    m_load = tl.where((i_block > 0) & (computed > 0), m_tile, False)
    # What is not loaded costs nothing so; a row beside the state is never added to another.
    poison = tl.where(computed > 0, T_POISON_U32 if EXACT else float("nan"), 0)
    p_load = p_tile + i_block * stride_block
    b_state = tl.load(p_load, mask=m_load, other=poison, eviction_policy=EVICTION)
    b_state = widen(b_state, EXACT)
    return b_state if WHOLE else tl.where(m_tile, b_state, 0)
