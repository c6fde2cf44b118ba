"""Three-dimensional positions from the host's optimistic ones and the counts on the device."""

from __future__ import annotations

from racegate_kernels._triton import tl, triton
from racegate_kernels.launch import assert_dense
from racegate_kernels.numerics import Array
from racegate_kernels.rows import row_span, token_rows

BLOCK = 128


def correct_mrope_eager(
    mrope_host: Array,
    computed: Array,
    computed_host: Array,
    query_start: Array,
    mrope_positions: Array,
) -> None:
    """mrope_positions[t] = mrope_host[t] + computed[row] - computed_host[row], in every coordinate.

    Whoever has drafts in flight is behind its prompt, where all coordinates grow by 1 per token.

    mrope_host: [T, 3] int32, read
    computed, computed_host: [R] int32, read
    query_start: [R + 1] int32, read
    mrope_positions: [T_max, 3] int32, written whole, the tail with 0
    """
    row_of, _ = token_rows(query_start)
    drift = (computed - computed_host)[row_of]
    mrope_positions[: len(row_of)] = mrope_host[: len(row_of)] + drift[:, None]
    mrope_positions[len(row_of) :] = 0


def correct_mrope_triton(
    mrope_host: Array,
    computed: Array,
    computed_host: Array,
    query_start: Array,
    mrope_positions: Array,
) -> None:
    """The same on torch tensors."""
    assert_dense(mrope_host, computed, computed_host, query_start, mrope_positions)
    rows = len(computed)
    _correct_mrope_kernel[(rows + 1,)](
        mrope_host,
        computed,
        computed_host,
        query_start,
        mrope_positions,
        rows,
        len(mrope_host),
        len(mrope_positions),
        BLOCK=BLOCK,
    )


@triton.jit(do_not_specialize=["rows", "tokens"])
def _correct_mrope_kernel(
    p_mrope_host,  # [T, 3] int32, read
    p_computed,  # [R] int32, read
    p_computed_host,  # [R] int32, read
    p_query_start,  # [R + 1] int32, read
    p_mrope_positions,  # [T_max, 3] int32, written whole
    rows,
    tokens,
    tokens_max,
    BLOCK: tl.constexpr,
):
    """One program per row, and a last one for the tail. Coordinates of one token are neighbours."""
    i_row = tl.program_id(0)
    if i_row < rows:
        start, end = row_span(p_query_start, i_row, tokens)
        drift = tl.load(p_computed + i_row) - tl.load(p_computed_host + i_row)
        i_first = start * 3
        while i_first < end * 3:
            o = i_first + tl.arange(0, BLOCK)
            m = o < end * 3
            b_place = tl.load(p_mrope_host + o, mask=m, other=0)
            tl.store(p_mrope_positions + o, b_place + drift, mask=m)
            i_first += BLOCK
    else:
        i_first = tl.maximum(tl.load(p_query_start + rows), 0) * 3
        while i_first < tokens_max * 3:
            o = i_first + tl.arange(0, BLOCK)
            tl.store(p_mrope_positions + o, 0, mask=o < tokens_max * 3)
            i_first += BLOCK
