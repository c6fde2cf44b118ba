"""Cache mode align: moves of states and windows, and which boundary a step has crossed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_twins import DTYPES, Array, compare, int32, poison, values
from racegate_kernels.backend import EAGER
from racegate_kernels.poison import POISON_I32


@DTYPES
@pytest.mark.parametrize("inner", [(1, 1, 1), (2, 3, 5), (3, 40, 50)])
def test_migrate_states(dtype: Any, inner: tuple[int, ...]) -> None:
    state = values(np.random.default_rng(0), (9, *inner), dtype)
    source, target = int32(1, 3, 0, 5, -1, 9, 6, POISON_I32), int32(2, 3, 4, 0, 7, 7, 9, 8)
    after = compare("migrate_states", state, source, target).args[0]
    np.testing.assert_array_equal(after[2], state[1])
    np.testing.assert_array_equal(after[3:], state[3:])


@DTYPES
@pytest.mark.parametrize("channels", [1, 5, 300])
@pytest.mark.parametrize("width", [1, 2, 4])
def test_migrate_windows_shifts_within_a_window(dtype: Any, width: int, channels: int) -> None:
    window = values(np.random.default_rng(1), (9, channels, width + 2), dtype)
    source, target = int32(1, 2, 4, 6, 0, 7, 8, 8), int32(1, 3, 4, 6, 5, 0, 9, 8)
    offset = int32(2, 1, 3, 0, 0, 0, 0, -1)
    after = compare("migrate_windows", window, source, target, offset, width=width).args[0]
    kept = width - 1
    np.testing.assert_array_equal(after[1, :, :kept], window[1, :, 2 : 2 + kept])
    np.testing.assert_array_equal(after[3, :, :kept], window[2, :, 1 : 1 + kept])


INTERVAL = 8


def boundary_arguments(rng: np.random.Generator, rows: int, *, drafts_max: int = 3) -> list[Array]:
    """Rows after a step, with counts in the range a right engine has."""
    drafts = rng.integers(0, drafts_max + 1, rows)
    computed = rng.integers(0, 30, rows)
    accepted = rng.integers(1, drafts + 2)
    is_decode = rng.integers(0, 2, rows)
    column = -(-(computed + drafts + 1) // INTERVAL) - 1
    table = rng.permutation(rows * 10).reshape(rows, 10)
    read = [accepted, computed, drafts + 1, drafts, is_decode, column, table]
    return [x.astype(np.int32) for x in read] + [poison((rows,)) for _ in range(5)]


@settings(max_examples=30)
@given(rows=st.sampled_from([1, 3, 70]), wrong=st.booleans(), seed=st.integers(0, 99))
def test_boundary_plan(rows: int, seed: int, *, wrong: bool) -> None:
    rng = np.random.default_rng(seed)
    args = boundary_arguments(rng, rows)
    for x in args[:6] if wrong else ():
        where = rng.random(rows) < 0.3
        x[where] = rng.choice(int32(-9, -1, 0, 77, POISON_I32), int(where.sum()))
    compare("boundary_plan", *args, interval=INTERVAL)


@settings(max_examples=30)
@given(seed=st.integers(0, 999))
def test_twin_of_boundary_plan_equals_the_definition(seed: int) -> None:
    """The running window holds, in column c + t, the state after F + t + 1 tokens."""
    args = boundary_arguments(np.random.default_rng(seed), 8)
    EAGER.boundary_plan(*args, interval=INTERVAL)
    accepted, computed, _, _, is_decode, column, table, *written = args
    for row in range(8):
        final_before, final_after = computed[row], computed[row] + accepted[row]
        boundary = final_after // INTERVAL * INTERVAL
        c, a = column[row], accepted[row]
        expected = (0, 0, 0, 0, a)
        if is_decode[row] and boundary > final_before:
            t = boundary - final_before - 1
            keep = boundary // INTERVAL - 1
            counts = 1 if keep == c else a
            expected = (table[row, c + t], table[row, c], table[row, keep], t, counts)
        assert tuple(x[row] for x in written) == expected
