"""Rows of request slots, gathered and scattered, and where the device sends running states."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_twins import Array, compare, int32, poison, starts, values
from racegate_kernels.poison import POISON_I32, poison_of

DTYPES = pytest.mark.parametrize("dtype", [np.uint32, np.int32, np.float32])
OUTSIDE = int32(2, -1, 0, 5, POISON_I32)


def table_of(shape: tuple[int, ...], dtype: Any) -> Array:
    rng = np.random.default_rng(0)
    if dtype == np.float32:
        return values(rng, shape, dtype)
    return values(rng, shape, np.uint32).astype(dtype)


@DTYPES
@pytest.mark.parametrize("inner", [(), (1,), (3,), (2, 5), (0,)], ids=str)
def test_a_slot_outside_gives_poison_and_takes_nothing(dtype: Any, inner: tuple[int, ...]) -> None:
    table, rows = table_of((5, *inner), dtype), table_of((5, *inner), dtype)[::-1].copy()
    if dtype != np.uint32:  # a launcher cannot tell uint32 from the int32 that has its bits
        gathered = compare("gather_rows", table, OUTSIDE, poison(rows.shape, dtype)).args[2]
        np.testing.assert_array_equal(gathered[[0, 2]], table[[2, 0]])
        np.testing.assert_array_equal(gathered[[1, 3, 4]], np.full_like(rows[:3], poison_of(dtype)))
    scattered = compare("scatter_rows", table, OUTSIDE, rows).args[0]
    np.testing.assert_array_equal(scattered[[2, 0]], rows[[0, 2]])
    np.testing.assert_array_equal(scattered[[1, 3, 4]], table[[1, 3, 4]])


@settings(max_examples=25)
@given(st.permutations(range(6)), st.integers(0, 6))
def test_what_was_scattered_is_gathered(slots: list[int], count: int) -> None:
    index, rows = int32(*slots[:count]), table_of((count, 3), np.int32)
    table = compare("scatter_rows", table_of((6, 3), np.int32), index, rows).args[0]
    assert (compare("gather_rows", table, index, 0 * rows).args[2] == rows).all()


@settings(max_examples=25)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=40))
def test_a_slot_that_stands_twice_takes_the_last_of_its_rows(slots: list[int]) -> None:
    rows = table_of((len(slots), 3), np.int32)
    table = compare("scatter_rows", table_of((3, 3), np.int32), int32(*slots), rows).args[0]
    for slot in set(slots):
        last = len(slots) - 1 - slots[::-1].index(slot)
        assert (table[slot] == rows[last]).all()


ROWS = st.tuples(st.integers(0, 20), st.integers(1, 5), st.integers(-1, 6), st.integers(1, 4))


@settings(max_examples=25)
@given(st.lists(ROWS, min_size=1, max_size=5))
def test_states_move_where_the_tokens_end(rows: list[tuple[int, int, int, int]]) -> None:
    computed, tokens, before, accepted = (int32(*field) for field in zip(*rows, strict=True))
    columns, width, interval = 7, 4, 4
    table = 1 + np.arange(len(rows) * columns, dtype=np.int32).reshape(-1, columns)
    outputs = [poison((len(rows),)) for _ in range(4)]
    window = poison((len(rows), width))
    after = compare(
        "column_plan",
        computed,
        starts(tokens),
        before,
        table,
        accepted,
        poison((len(rows),)),
        window,
        *outputs,
        interval=interval,
    ).args
    counts, column, window, source, window_source, target, offset = after[4:]
    for row, (done, n, was, count) in enumerate(rows):
        first = (done + n - 1) // interval
        listed = [*table[row].tolist(), *[0] * (width + 9)]
        assert column[row] == first
        assert window[row].tolist() == listed[first : first + width]
        moves = was >= 0 and was != first
        copied = (listed[was + count - 1], listed[was], listed[first], count - 1)
        found = (source[row], window_source[row], target[row], offset[row])
        assert found == (copied if moves else (0, 0, 0, 0))
        assert counts[row] == (1 if moves else count)
