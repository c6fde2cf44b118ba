"""The paged cache: writes by slot, and attention over it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_twins import DTYPES, POISON_MAKES_NAN, Array, compare, int32, sliced, starts, values
from racegate_kernels.poison import POISON_I32

BLOCKS = 12


@DTYPES
@pytest.mark.parametrize("width", [1, 5, 300])
@pytest.mark.parametrize("tokens", [0, 1, 6])
def test_cache_write_outside_writes_nothing(dtype: Any, width: int, tokens: int) -> None:
    rng = np.random.default_rng(0)
    entries, cache = values(rng, (tokens, width), dtype), values(rng, (3, 4, width), dtype)
    slots = int32(4, 11, 3, -1, 12, POISON_I32)[:tokens]
    after = compare("cache_write", sliced(entries), slots, cache).args[2]
    np.testing.assert_array_equal(after[0], cache[0])


def attend(
    rng: np.random.Generator,
    dtype: Any,
    *,
    lengths: list[int],
    computed: list[int],
    table: Array,
    sizes: tuple[int, int] = (2, 3),
    block_size: int = 4,
    unseen: int = 0,
) -> Array:
    """Attention with right positions; every third row has a sequence length short by `unseen`."""
    heads, head_size = sizes
    query_start = starts(lengths)
    seq_lens = int32(*computed) + np.diff(query_start)
    seq_lens[::3] -= unseen
    positions = np.concatenate(
        [c + np.arange(n) for c, n in zip(computed, lengths, strict=True)]
    ).astype(np.int32)
    q = sliced(values(rng, (len(positions), heads, head_size), dtype))
    cache = values(rng, (BLOCKS, block_size, 2 * heads * head_size), dtype)
    return compare("paged_attention", q, cache, table, query_start, seq_lens, positions).returned


@DTYPES
@pytest.mark.parametrize("sizes", [(1, 1), (2, 3), (3, 8), (1, 130)])
def test_attention_of_rows_of_all_lengths(dtype: Any, sizes: tuple[int, int]) -> None:
    table = np.arange(1, 10, dtype=np.int32).reshape(3, 3)
    rng = np.random.default_rng(1)
    attend(rng, dtype, lengths=[3, 0, 1], computed=[0, 4, 11], table=table, sizes=sizes)


@DTYPES
@pytest.mark.parametrize("block_size", [1, 7, 64])
def test_attention_over_several_blocks_of_the_loop(dtype: Any, block_size: int) -> None:
    table = np.resize(np.arange(1, BLOCKS, dtype=np.int32), (2, 200 // block_size + 1))
    rng = np.random.default_rng(2)
    attend(rng, dtype, lengths=[2, 1], computed=[150, 64], table=table, block_size=block_size)


@POISON_MAKES_NAN
@DTYPES
@settings(max_examples=20)
@given(
    rows=st.lists(st.tuples(st.integers(0, 4), st.integers(-3, 16)), min_size=1, max_size=5),
    seed=st.integers(0, 99),
)
def test_attention_with_wrong_tables_and_counts(
    dtype: Any, rows: list[tuple[int, int]], seed: int
) -> None:
    """Null blocks and blocks outside the pool read poison; what is not seen never counts."""
    rng = np.random.default_rng(seed)
    table = rng.integers(1, BLOCKS, (len(rows), 3)).astype(np.int32)
    wrong = rng.random(table.shape) < 0.15
    table[wrong] = rng.choice(int32(0, -1, BLOCKS, POISON_I32), int(wrong.sum()))
    lengths, computed = [n for n, _ in rows], [c for _, c in rows]
    attend(rng, dtype, lengths=lengths, computed=computed, table=table, unseen=seed % 3)


@DTYPES
def test_attention_looks_through_all_rows(dtype: Any) -> None:
    rows = 140
    table = np.resize(np.arange(1, BLOCKS, dtype=np.int32), (rows, 1))
    lengths, computed = [0] * (rows - 2) + [1, 1], [2] * rows
    attend(np.random.default_rng(3), dtype, lengths=lengths, computed=computed, table=table)
