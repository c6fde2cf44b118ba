"""The Mamba2 update: the launcher against its twin, and the twin against the definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_batches import BLOCKS, Rows, decode_rows, random_rows
from kernel_twins import DTYPES, POISON_MAKES_NAN, Array, compare, int32, sliced, starts, values
from racegate_kernels.backend import EAGER
from racegate_kernels.numerics import mix_eager


def inputs(
    rng: np.random.Generator, rows: Rows, dtype: Any, *, heads: int, head_size: int, state_size: int
) -> list[Array]:
    token_shapes = [(heads, head_size), (state_size,), (state_size,), (heads,)]
    tokens = [sliced(values(rng, (rows.tokens, *shape), dtype)) for shape in token_shapes]
    parameters = [values(rng, (heads,), dtype) for _ in range(3)]
    state = values(rng, (BLOCKS, heads, head_size, state_size), dtype)
    return [*tokens, *parameters, state, rows.table, *rows.counts]


@DTYPES
@pytest.mark.parametrize("sizes", [(1, 1, 1), (2, 3, 5), (3, 8, 4), (1, 33, 130)])
def test_decode_rows_start_at_every_column(dtype: Any, sizes: tuple[int, int, int]) -> None:
    rows = decode_rows([3, 1, 2, 3], [1, 2, 3, 3], columns=3)
    heads, head_size, state_size = sizes
    rng = np.random.default_rng(0)
    args = inputs(rng, rows, dtype, heads=heads, head_size=head_size, state_size=state_size)
    compare("mamba2_update", *args)


@POISON_MAKES_NAN
@DTYPES
@settings(max_examples=20)
@given(lengths=st.lists(st.integers(0, 4), min_size=1, max_size=6), seed=st.integers(0, 99))
def test_any_rows(dtype: Any, lengths: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = random_rows(rng, lengths, columns=3)
    args = inputs(rng, rows, dtype, heads=2, head_size=3, state_size=5)
    compare("mamba2_update", *args)


def test_prefill_keeps_only_its_last_state_in_the_first_column() -> None:
    rows = decode_rows([6], [1], columns=3)
    rng = np.random.default_rng(1)
    args = inputs(rng, rows, np.uint32, heads=1, head_size=2, state_size=2)
    args[-1][...] = 0
    after = compare("mamba2_update", *args).args[7]
    assert (after[1] != args[7][1]).any()
    np.testing.assert_array_equal(after[2:], args[7][2:])


def test_rolled_back_decoding_equals_the_definition() -> None:
    """Every step feeds drafts of which some are rejected; the outputs of the others are true."""
    heads, head_size, state_size = 2, 2, 3
    rng = np.random.default_rng(2)
    shapes = [(heads, head_size), (state_size,), (state_size,), (heads,)]
    true = [values(rng, (12, *shape), np.uint32) for shape in shapes]
    parameters = [values(rng, (heads,), np.uint32) for _ in range(3)]
    expected = plain_outputs(*true, dt_bias=parameters[0], skip=parameters[2])

    state = values(rng, (4, heads, head_size, state_size), np.uint32)
    table = int32(3, 1, 2)[None]
    done, accepted = 0, 1
    for scheduled, kept in [(4, 4), (3, 2), (1, 1), (3, 3), (2, 1), (1, 1)]:
        prefill = done == 0
        x = [part[done : done + scheduled].copy() for part in true]
        for part in x:
            part[kept:] = values(rng, part[kept:].shape, np.uint32)
        counts = starts([scheduled]), int32(accepted), int32(done), int32(not prefill)
        y = EAGER.mamba2_update(*x, *parameters, state, table, *counts)
        np.testing.assert_array_equal(y[:kept], expected[done : done + kept])
        done, accepted = done + kept, 1 if prefill else kept
    assert done == 12


def plain_outputs(x: Array, b: Array, c: Array, dt: Array, *, dt_bias: Array, skip: Array) -> Array:
    """DEFINITION section 2, mamba2 in exact, with Python's integers."""
    tokens, heads, head_size = x.shape
    y = np.zeros_like(x)
    for h in range(heads):
        state = [[0] * b.shape[1] for _ in range(head_size)]
        for t in range(tokens):
            decay = int(mix_eager(dt[t, h : h + 1] + dt_bias[h])[0]) | 1
            for p in range(head_size):
                new = int(x[t, h, p])
                state[p] = [decay * s + new * int(bn) for s, bn in zip(state[p], b[t], strict=True)]
                out = sum(s * int(cn) for s, cn in zip(state[p], c[t], strict=True))
                y[t, h, p] = (out + int(skip[h]) * new) % 2**32
    return y
