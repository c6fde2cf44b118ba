"""Zeroing of blocks: listed blocks of a pool and nothing beside them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_twins import Array, compare, int32, sliced, values
from racegate_kernels.poison import POISON_I32

DTYPES = pytest.mark.parametrize("dtype", [np.uint32, np.int32, np.float32])


def pool_of(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Array:
    """A pool without a zero in it."""
    if dtype == np.float32:
        return 1 + np.abs(values(rng, shape, dtype))
    return (values(rng, shape, np.uint32) | 1).astype(dtype)


@DTYPES
@pytest.mark.parametrize("inner", [(), (1,), (3,), (2, 3, 5), (3, 40, 50)], ids=str)
def test_zeroes_the_listed_blocks_only(dtype: Any, inner: tuple[int, ...]) -> None:
    pool = pool_of(np.random.default_rng(0), (9, *inner), dtype)
    blocks = int32(2, 0, 8, 2, -1, 9, POISON_I32, -(2**31))
    after = compare("zero_blocks", pool, blocks).args[0]
    zeroed = (after == 0).reshape(9, -1)
    assert zeroed.all(axis=1).tolist() == zeroed.any(axis=1).tolist()
    assert np.flatnonzero(zeroed.any(axis=1)).tolist() == [2, 8]
    kept = ~zeroed.any(axis=1)
    np.testing.assert_array_equal(after[kept], pool[kept])


@DTYPES
@settings(max_examples=25)
@given(
    blocks=st.lists(st.sampled_from([-7, -1, 0, 1, 2, 3, 4, 5, 6, POISON_I32]), max_size=9),
    pool_blocks=st.integers(1, 5),
)
def test_any_list(dtype: Any, blocks: list[int], pool_blocks: int) -> None:
    pool = pool_of(np.random.default_rng(1), (pool_blocks, 2, 3), dtype)
    after = compare("zero_blocks", pool, int32(*blocks)).args[0]
    for block in range(pool_blocks):
        expected = 0 if block in blocks and block > 0 else pool[block]
        np.testing.assert_array_equal(after[block], np.broadcast_to(expected, (2, 3)))


def test_blocks_apart_in_a_wider_buffer() -> None:
    pool = sliced(pool_of(np.random.default_rng(2), (4, 3, 2), np.uint32))
    after = compare("zero_blocks", pool, int32(3, 1)).args[0]
    np.testing.assert_array_equal(after == 0, (np.arange(4) % 2 == 1)[:, None, None] | (pool == 0))
