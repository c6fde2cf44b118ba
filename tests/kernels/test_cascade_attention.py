"""Attention over a common prefix once and over the rest of each row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_twins import (
    DTYPES,
    POISON_MAKES_NAN,
    Array,
    assert_same,
    compare,
    int32,
    run_eager,
    sliced,
    starts,
    values,
)
from racegate_kernels.poison import POISON_I32

BLOCKS, SIZE = 12, 4


def arguments(
    rng: np.random.Generator,
    dtype: Any,
    *,
    lengths: list[int],
    computed: list[int],
    table: Array,
    heads: tuple[int, int, int] = (2, 1, 3),
) -> list[Array]:
    """Of both kernels, with right positions. heads: of queries, of keys, their size"""
    count, shared, size = heads
    query_start = starts(lengths)
    places = [c + np.arange(n) for c, n in zip(computed, lengths, strict=True)]
    positions = np.concatenate(places).astype(np.int32)
    q = sliced(values(rng, (len(positions), count, size), dtype))
    cache = values(rng, (BLOCKS, SIZE, 2 * shared * size), dtype)
    return [q, cache, table, query_start, int32(*computed) + np.diff(query_start), positions]


@DTYPES
@pytest.mark.parametrize("heads", [(2, 1, 3), (4, 2, 130)])
@pytest.mark.parametrize("prefix", [0, 8])
def test_both_parts_make_what_attention_makes_in_one(
    dtype: Any, heads: tuple[int, int, int], prefix: int
) -> None:
    table = int32([3, 5, 6, 7], [3, 5, 8, 9], [3, 5, 10, 11])
    rows = {"lengths": [3, 0, 6], "computed": [8, 12, 9], "table": table}
    of_rows = arguments(np.random.default_rng(1), dtype, heads=heads, **rows)
    found = compare("cascade_attention", *of_rows, int32(prefix)).returned
    assert_same(found, run_eager("paged_attention", *of_rows).returned, what="one part")


@POISON_MAKES_NAN
@DTYPES
@settings(max_examples=6)
@given(
    rows=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 12)), min_size=1, max_size=5),
    prefix=st.integers(-1, 20),
    seed=st.integers(0, 99),
)
def test_a_wrong_prefix_is_read_by_every_token(
    dtype: Any, rows: list[tuple[int, int]], prefix: int, seed: int
) -> None:
    """Too long, over other blocks, null ones, or such outside the pool: the same everywhere."""
    rng = np.random.default_rng(seed)
    table = rng.integers(1, BLOCKS, (len(rows), 3)).astype(np.int32)
    wrong = rng.random(table.shape) < 0.1
    table[wrong] = rng.choice(int32(0, -1, BLOCKS, POISON_I32), int(wrong.sum()))
    lengths, computed = [n for n, _ in rows], [c for _, c in rows]
    of_rows = arguments(rng, dtype, lengths=lengths, computed=computed, table=table)
    compare("cascade_attention", *of_rows, int32(prefix))


@DTYPES
def test_a_prefix_that_reaches_a_token_lets_it_see_what_is_behind_it(dtype: Any) -> None:
    of_rows = arguments(
        np.random.default_rng(2), dtype, lengths=[2], computed=[5], table=int32([3, 5])
    )
    right, wrong = (compare("cascade_attention", *of_rows, int32(n)).returned for n in (4, 8))
    assert not np.allclose(right, wrong)
