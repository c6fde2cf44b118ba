"""What stands behind the batch of a replayed graph, and fills."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_twins import compare, int32, sliced

ROWS_MAX, WIDTH = 300, 4


@given(row=st.integers(0, ROWS_MAX), pads=st.integers(0, ROWS_MAX), stride=st.integers(0, WIDTH))
def test_pad_tokens(row: int, pads: int, stride: int) -> None:
    row_end = min(row + pads, ROWS_MAX)
    token, token_end = row * WIDTH, row_end * WIDTH
    query_start = np.arange(ROWS_MAX + 1, dtype=np.int32) * 7
    input_ids = np.arange(ROWS_MAX * WIDTH, dtype=np.int32) + 1
    span = {"row": row, "row_end": row_end, "token": token, "token_end": token_end}
    starts, ids = compare("pad_tokens", query_start, input_ids, **span, stride=stride).args
    expected = token + stride * np.arange(row_end + 1 - row)
    np.testing.assert_array_equal(starts[row : row_end + 1], expected)
    np.testing.assert_array_equal(ids[token:token_end], 0)
    kept = np.r_[0:row, row_end + 1 : ROWS_MAX + 1]
    np.testing.assert_array_equal(starts[kept], query_start[kept])
    kept = np.r_[0:token, token_end : ROWS_MAX * WIDTH]
    np.testing.assert_array_equal(ids[kept], input_ids[kept])


@pytest.mark.parametrize("columns", [1, 5, 200])
@pytest.mark.parametrize(("row", "row_end"), [(0, 6), (2, 5), (3, 3), (5, 6)])
def test_pad_rows(columns: int, row: int, row_end: int) -> None:
    rng = np.random.default_rng(0)
    blocks = sliced(rng.integers(1, 99, (6, columns)).astype(np.int32))
    windows = rng.integers(1, 99, (6, 3)).astype(np.int32)
    counts, computed = int32(*range(2, 8)), int32(*range(9, 15))
    args = (blocks, windows, counts, computed)
    after = compare("pad_rows", *args, row=row, row_end=row_end).args
    for before, found, padding in zip(args, after, (0, 0, 1, 0), strict=True):
        is_pad = (np.arange(6) >= row) & (np.arange(6) < row_end)
        assert (found[is_pad] == padding).all()
        np.testing.assert_array_equal(found[~is_pad], before[~is_pad])


def test_fill() -> None:
    assert compare("fill", np.zeros((3, 2), np.int32), value=-5).args[0].tolist() == [[-5, -5]] * 3
