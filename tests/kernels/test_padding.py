"""Batches of a replayed graph: rows without tokens at the end, and tokens behind the last row.

The law, for each kernel and on both sides: a padded call gives the real tokens what the unpadded
call gives them, bit for bit, changes no other state, window or cache entry, and where tokens are
mapped to rows the tokens behind the last row come out as 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_batches import BLOCKS, Rows, random_rows
from kernel_twins import (
    DTYPES,
    FLOAT_TOLERANCE,
    POISON_MAKES_NAN,
    Array,
    Outcome,
    compare,
    int32,
    poison,
    run_eager,
    run_triton,
    sliced,
    starts,
    values,
)
from racegate_kernels.rows import token_rows
from support import IS_NIGHTLY

# An argument as it is without padding, and with it.
Pair = tuple[Array, Array]
Run = Callable[..., Outcome]
# Makes the arguments of the kernel of its name.
Kernel = Callable[["Padding", Rows], list[Pair]]
HEADS, HEAD_SIZE, STATE_SIZE, COLUMNS, WIDTH = 2, 3, 5, 3, 3
VOCAB, BLOCK_SIZE, CONTEXT_BLOCKS = 11, 4, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Padding:
    """Numbers of rows and tokens that stand behind the real ones."""

    rng: np.random.Generator
    dtype: Any
    rows: int
    tokens: int

    def of_tokens(self, x: Array) -> Pair:
        """Model quantities; whatever the buffer held stands behind them."""
        return x, _behind(x, values(self.rng, (self.tokens, *x.shape[1:]), self.dtype))

    def of_indices(self, x: Array, fill: int) -> Pair:
        return x, _behind(x, np.full(self.tokens, fill, np.int32))

    def of_rows(self, x: Array, *fill: int) -> Pair:
        drawn = self.rng.choice(int32(*fill), (self.rows, *x.shape[1:]))
        return x, _behind(x, drawn)

    def of_starts(self, query_start: Array) -> Pair:
        return query_start, _behind(query_start, np.full(self.rows, query_start[-1], np.int32))

    def of_counts(self, rows: Rows) -> list[Pair]:
        return [
            self.of_starts(rows.query_start),
            self.of_rows(rows.accepted, 1),
            self.of_rows(rows.computed, 0),
            self.of_rows(rows.is_decode, 0, 1),
        ]

    def quantities(self, *shape: int) -> Pair:
        """Model quantities that have no padding: parameters and pools."""
        x = values(self.rng, shape, self.dtype)
        return x, x


def _behind(x: Array, padding: Array) -> Array:
    """x and what stands behind it; rows apart, as in a projection, if those of x are."""
    joined = np.concatenate([x, padding]).astype(x.dtype)
    return joined if x.flags.c_contiguous else sliced(joined)


def conv_update(pad: Padding, rows: Rows) -> list[Pair]:
    x = sliced(values(pad.rng, (rows.tokens, HEAD_SIZE), pad.dtype))
    weight = pad.quantities(HEAD_SIZE, WIDTH)
    window = pad.quantities(BLOCKS, HEAD_SIZE, WIDTH - 1 + COLUMNS - 1)
    block = pad.of_rows(np.ascontiguousarray(rows.table[:, 0]), 0)
    return [pad.of_tokens(x), weight, window, block, *pad.of_counts(rows)]


def mamba2_update(pad: Padding, rows: Rows) -> list[Pair]:
    shapes = [(HEADS, HEAD_SIZE), (STATE_SIZE,), (STATE_SIZE,), (HEADS,)]
    tokens = [sliced(values(pad.rng, (rows.tokens, *shape), pad.dtype)) for shape in shapes]
    parameters = [pad.quantities(HEADS) for _ in range(3)]
    state = pad.quantities(BLOCKS, HEADS, HEAD_SIZE, STATE_SIZE)
    row = [pad.of_rows(rows.table, 0), *pad.of_counts(rows)]
    return [*map(pad.of_tokens, tokens), *parameters, state, *row]


def gated_delta_update(pad: Padding, rows: Rows) -> list[Pair]:
    shapes = [(HEADS, STATE_SIZE), (HEADS, STATE_SIZE), (HEADS, HEAD_SIZE), (HEADS,), (HEADS,)]
    tokens = [sliced(values(pad.rng, (rows.tokens, *shape), pad.dtype)) for shape in shapes]
    parameters = [pad.quantities(HEADS) for _ in range(2)]
    state = pad.quantities(BLOCKS, HEADS, HEAD_SIZE, STATE_SIZE)
    row = [pad.of_rows(rows.table, 0), *pad.of_counts(rows)]
    return [*map(pad.of_tokens, tokens), *parameters, state, *row]


def paged_attention(pad: Padding, rows: Rows) -> list[Pair]:
    lengths = np.diff(rows.query_start)
    computed = pad.rng.integers(0, 9, len(lengths))
    positions = starting_at(computed, rows)
    table = pad.rng.integers(0, BLOCKS + 1, (len(lengths), CONTEXT_BLOCKS)).astype(np.int32)
    return [
        pad.of_tokens(sliced(values(pad.rng, (rows.tokens, HEADS, HEAD_SIZE), pad.dtype))),
        pad.quantities(BLOCKS, BLOCK_SIZE, 2 * HEADS * HEAD_SIZE),
        pad.of_rows(table, 0),
        pad.of_starts(rows.query_start),
        pad.of_rows((computed + lengths).astype(np.int32), 0),
        pad.of_indices(positions, 0),
    ]


def cascade_attention(pad: Padding, rows: Rows) -> list[Pair]:
    """Row 0's blocks are read for all rows; a batch of nothing but padding has no prefix."""
    blocks = pad.rng.integers(0, 3) if rows.tokens else 0
    prefix = int32(blocks * BLOCK_SIZE)
    return [*paged_attention(pad, rows), (prefix, prefix)]


def starting_at(computed: Array, rows: Rows) -> Array:
    """Positions of the tokens of rows with these computed counts."""
    row_of, index = token_rows(rows.query_start)
    return (computed[row_of] + index).astype(np.int32)


MAPS_TOKENS_TO_ROWS = [
    conv_update,
    mamba2_update,
    gated_delta_update,
    paged_attention,
    cascade_attention,
]


def cache_write(pad: Padding, rows: Rows) -> list[Pair]:
    slots = pad.rng.permutation(BLOCKS * BLOCK_SIZE)[: rows.tokens].astype(np.int32)
    entries = sliced(values(pad.rng, (rows.tokens, HEAD_SIZE), pad.dtype))
    cache = pad.quantities(BLOCKS, BLOCK_SIZE, HEAD_SIZE)
    return [pad.of_tokens(entries), pad.of_indices(slots, -1), cache]


def rotary(pad: Padding, rows: Rows) -> list[Pair]:
    x = sliced(values(pad.rng, (rows.tokens, HEADS, 2 * HEAD_SIZE), pad.dtype))
    positions = pad.rng.integers(0, 1000, rows.tokens).astype(np.int32)
    return [pad.of_tokens(x), pad.of_indices(positions, 0)]


def embedding(pad: Padding, rows: Rows) -> list[Pair]:
    ids = pad.rng.integers(-1, VOCAB + 1, rows.tokens).astype(np.int32)
    return [pad.of_indices(ids, 0), pad.quantities(VOCAB, HEAD_SIZE)]


def norm(pad: Padding, rows: Rows) -> list[Pair]:
    return [pad.of_tokens(values(pad.rng, (rows.tokens, STATE_SIZE), pad.dtype))]


def head_norm(pad: Padding, rows: Rows) -> list[Pair]:
    return [pad.of_tokens(values(pad.rng, (rows.tokens, HEADS, HEAD_SIZE), pad.dtype))]


def gate(pad: Padding, rows: Rows) -> list[Pair]:
    y = values(pad.rng, (rows.tokens, STATE_SIZE), pad.dtype)
    return [pad.of_tokens(y), pad.of_tokens(sliced(y[::-1]))]


def attention_gate(pad: Padding, rows: Rows) -> list[Pair]:
    return norm(pad, rows)


def linear(pad: Padding, rows: Rows) -> list[Pair]:
    return [*norm(pad, rows), pad.quantities(HEADS, STATE_SIZE)]


TOKEN_BY_TOKEN = [cache_write, rotary, embedding, norm, head_norm, gate, attention_gate, linear]
MAPPED = pytest.mark.parametrize("kernel", MAPS_TOKENS_TO_ROWS, ids=lambda kernel: kernel.__name__)
ANY = pytest.mark.parametrize(
    "kernel", [*MAPS_TOKENS_TO_ROWS, *TOKEN_BY_TOKEN], ids=lambda kernel: kernel.__name__
)
BATCHES = {
    "lengths": st.lists(st.integers(0, 4), min_size=1, max_size=4),
    "padding": st.tuples(st.integers(0, 3), st.integers(0, 12)),
    "seed": st.integers(0, 99),
}


def assert_padding_changes_nothing(
    run: Run, kernel: Kernel, dtype: Any, lengths: list[int], padding: tuple[int, int], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    rows = random_rows(rng, lengths, columns=COLUMNS)
    pad = Padding(rng=rng, dtype=dtype, rows=padding[0], tokens=padding[1])
    pairs = kernel(pad, rows)
    plain = run(kernel.__name__, *(pair[0] for pair in pairs))
    padded = run(kernel.__name__, *(pair[1] for pair in pairs))
    if plain.returned is not None:
        assert len(padded.returned) == rows.tokens + pad.tokens
        # The vendor's product of floats sums in an order that depends on the number of tokens.
        loose = kernel is linear and dtype == np.float32
        assert_begins_with(padded.returned, plain.returned, tolerance=FLOAT_TOLERANCE * loose)
        if kernel in MAPS_TOKENS_TO_ROWS:
            assert not padded.returned[rows.tokens :].any()
    for after, expected in zip(padded.args, plain.args, strict=True):
        assert_begins_with(after, expected, tolerance=0.0)


def assert_begins_with(padded: Array, plain: Array, *, tolerance: float) -> None:
    assert padded.dtype == plain.dtype
    real = padded[: len(plain)]
    if tolerance > 0:
        np.testing.assert_allclose(real, plain, rtol=tolerance, atol=tolerance)
    else:
        bits = [np.ascontiguousarray(x).view(np.uint32) for x in (real, plain)]
        np.testing.assert_array_equal(*bits)


@POISON_MAKES_NAN
@DTYPES
@ANY
@settings(max_examples=60)
@given(**BATCHES)
def test_padding_changes_nothing_in_the_twin(
    kernel: Kernel, dtype: Any, lengths: list[int], padding: tuple[int, int], seed: int
) -> None:
    assert_padding_changes_nothing(run_eager, kernel, dtype, lengths, padding, seed)


@POISON_MAKES_NAN
@DTYPES
@ANY
@settings(max_examples=50 if IS_NIGHTLY else 3)
@given(**BATCHES)
def test_padding_changes_nothing_in_the_source(
    kernel: Kernel, dtype: Any, lengths: list[int], padding: tuple[int, int], seed: int
) -> None:
    assert_padding_changes_nothing(run_triton, kernel, dtype, lengths, padding, seed)


@DTYPES
@MAPPED
@pytest.mark.parametrize("rows", [0, 1, 3])
def test_a_batch_of_nothing_but_padding(kernel: Kernel, dtype: Any, rows: int) -> None:
    """A step of an idle rank, or none at all: zeros come out and no pool changes."""
    rng = np.random.default_rng(0)
    nobody = random_rows(rng, [], columns=COLUMNS)
    pad = Padding(rng=rng, dtype=dtype, rows=rows, tokens=9)
    args = [pair[1] for pair in kernel(pad, nobody)]
    outcome = compare(kernel.__name__, *args)
    assert len(outcome.returned) == 9
    assert not outcome.returned.any()
    for after, before in zip(outcome.args, args, strict=True):
        np.testing.assert_array_equal(after, before)


@settings(max_examples=40)
@given(data=st.data(), **BATCHES)
def test_draft_inputs_of_a_padded_batch(
    data: st.DataObject, lengths: list[int], padding: tuple[int, int], seed: int
) -> None:
    """Wrong counts too: a last input behind the last row is nobody's."""
    pad = Padding(
        rng=np.random.default_rng(seed), dtype=np.int32, rows=padding[0], tokens=padding[1]
    )
    tokens, rows = sum(lengths), len(lengths)
    counts = st.lists(st.integers(0, 7), min_size=rows, max_size=rows)
    pairs = [
        pad.of_indices(np.arange(10, 10 + tokens, dtype=np.int32), 5),
        pad.of_starts(starts(lengths)),
        pad.of_rows(int32(*data.draw(counts)), 0),
        pad.of_rows(int32(*data.draw(counts)), 1),
        pad.of_rows(np.arange(70, 70 + rows, dtype=np.int32), 0),
        pad.of_indices(poison((tokens,)), 6),
        pad.of_rows(poison((rows,)), 6),
    ]
    plain = compare("draft_inputs", *(pair[0] for pair in pairs))
    padded = compare("draft_inputs", *(pair[1] for pair in pairs))
    for after, expected in zip(padded.args, plain.args, strict=True):
        assert_begins_with(after, expected, tolerance=0.0)
    assert not padded.args[5][tokens:].any()
