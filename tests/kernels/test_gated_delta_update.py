"""The gated delta update: the launcher against its twin, and the twin against the definition."""

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
    shapes = [(heads, state_size), (heads, state_size), (heads, head_size), (heads,), (heads,)]
    tokens = [sliced(values(rng, (rows.tokens, *shape), dtype)) for shape in shapes]
    parameters = [values(rng, (heads,), dtype) for _ in range(2)]
    state = values(rng, (BLOCKS, heads, head_size, state_size), dtype)
    return [*tokens, *parameters, state, rows.table, *rows.counts]


@DTYPES
@pytest.mark.parametrize("sizes", [(1, 1, 1), (2, 3, 5), (3, 8, 4), (1, 33, 130)])
def test_decode_rows_start_at_every_column(dtype: Any, sizes: tuple[int, int, int]) -> None:
    rows = decode_rows([3, 1, 2, 3], [1, 2, 3, 3], columns=3)
    heads, head_size, state_size = sizes
    rng = np.random.default_rng(0)
    args = inputs(rng, rows, dtype, heads=heads, head_size=head_size, state_size=state_size)
    compare("gated_delta_update", *args)


@POISON_MAKES_NAN
@DTYPES
@settings(max_examples=20)
@given(lengths=st.lists(st.integers(0, 4), min_size=1, max_size=6), seed=st.integers(0, 99))
def test_any_rows(dtype: Any, lengths: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = random_rows(rng, lengths, columns=3)
    args = inputs(rng, rows, dtype, heads=2, head_size=3, state_size=5)
    compare("gated_delta_update", *args)


def test_rolled_back_decoding_equals_the_definition() -> None:
    """Every step feeds drafts of which some are rejected; the outputs of the others are true."""
    heads, head_size, state_size = 2, 2, 3
    rng = np.random.default_rng(2)
    shapes = [(heads, state_size), (heads, state_size), (heads, head_size), (heads,), (heads,)]
    true = [values(rng, (12, *shape), np.uint32) for shape in shapes]
    dt_bias, a_log = (values(rng, (heads,), np.uint32) for _ in range(2))
    expected = plain_outputs(*true, dt_bias=dt_bias)

    state = values(rng, (4, heads, head_size, state_size), np.uint32)
    table = int32(3, 1, 2)[None]
    done, accepted = 0, 1
    for scheduled, kept in [(4, 4), (3, 2), (1, 1), (3, 3), (2, 1), (1, 1)]:
        prefill = done == 0
        x = [part[done : done + scheduled].copy() for part in true]
        for part in x:
            part[kept:] = values(rng, part[kept:].shape, np.uint32)
        counts = starts([scheduled]), int32(accepted), int32(done), int32(not prefill)
        out = EAGER.gated_delta_update(*x, dt_bias, a_log, state, table, *counts)
        np.testing.assert_array_equal(out[:kept], expected[done : done + kept])
        done, accepted = done + kept, 1 if prefill else kept
    assert done == 12


def plain_outputs(q: Array, k: Array, v: Array, b: Array, g: Array, *, dt_bias: Array) -> Array:
    """DEFINITION section 2, gated_delta in exact, with Python's integers."""
    tokens, heads, head_size = v.shape
    out = np.zeros_like(v)
    for h in range(heads):
        state = [[0] * q.shape[2] for _ in range(head_size)]
        for t in range(tokens):
            beta = 2 * int(mix_eager(b[t, h : h + 1])[0])
            decay = int(mix_eager(g[t, h : h + 1] + dt_bias[h])[0]) | 1
            key, query = [int(n) for n in k[t, h]], [int(n) for n in q[t, h]]
            for p in range(head_size):
                along = sum(s * n for s, n in zip(state[p], key, strict=True))
                new = int(v[t, h, p])
                state[p] = [
                    decay * (s - beta * along * n) + beta * new * n
                    for s, n in zip(state[p], key, strict=True)
                ]
                total = sum(s * n for s, n in zip(state[p], query, strict=True))
                out[t, h, p] = total % 2**32
    return out
