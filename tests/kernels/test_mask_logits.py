"""The grammar mask: the launcher against its twin, and the twin against a mask of booleans."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_twins import DTYPES, Array, compare, int32, packed, values


def forbidden_of(dtype: Any) -> Any:
    return np.uint32(0) if dtype == np.uint32 else np.float32(-np.inf)


def masked(logits: Array, allowed: Array) -> Array:
    """Masks on both sides; what every logit became."""
    words = packed(allowed)
    after = compare("mask_logits", logits, words).args
    np.testing.assert_array_equal(after[1], words)
    return after[0]


@DTYPES
@settings(max_examples=30)
@given(
    rows=st.integers(0, 3),
    columns=st.integers(1, 3),
    vocab_size=st.sampled_from([1, 2, 31, 32, 33, 64, 100]),
    share=st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]),
    seed=st.integers(0, 99),
)
def test_any_mask(
    dtype: Any, rows: int, columns: int, vocab_size: int, share: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    logits = values(rng, (rows, columns, vocab_size), dtype)
    allowed = rng.random(logits.shape) < share
    after = masked(logits, allowed)
    np.testing.assert_array_equal(after, np.where(allowed, logits, forbidden_of(dtype)))


@DTYPES
@pytest.mark.parametrize("vocab_size", [1, 32, 50])
def test_all_and_none_forbidden(dtype: Any, vocab_size: int) -> None:
    logits = values(np.random.default_rng(1), (2, 2, vocab_size), dtype)
    allowed = np.zeros(logits.shape, bool)
    assert (masked(logits, allowed) == forbidden_of(dtype)).all()
    np.testing.assert_array_equal(masked(logits, ~allowed), logits)


@DTYPES
def test_vocabularies_over_several_programs(dtype: Any) -> None:
    logits = values(np.random.default_rng(2), (1, 2, 2 * 4096 + 40), dtype)
    allowed = np.zeros(logits.shape, bool)
    allowed[..., ::7] = True
    np.testing.assert_array_equal(
        masked(logits, allowed), np.where(allowed, logits, forbidden_of(dtype))
    )


def test_bit_v_of_a_word_is_token_v_and_the_top_bit_is_the_sign() -> None:
    logits = np.arange(1, 41, dtype=np.uint32).reshape(1, 1, 40)
    after = compare("mask_logits", logits, int32([[-(2**31) + 1, 0b10]])).args[0]
    assert np.flatnonzero(after).tolist() == [0, 31, 33]


def test_bits_behind_the_vocabulary_mean_nothing() -> None:
    logits = np.ones((1, 2, 3), np.uint32)
    after = compare("mask_logits", logits, int32([[-1], [-8]])).args[0]
    assert after.tolist() == [[[1, 1, 1], [0, 0, 0]]]


def test_float_logits_that_are_no_numbers_are_masked_like_others() -> None:
    logits = np.array([[[np.nan, np.inf, -np.inf, np.nan]]], np.float32)
    after = compare("mask_logits", logits, int32([[0b1100]])).args[0]
    np.testing.assert_array_equal(after, [[[-np.inf, -np.inf, -np.inf, np.nan]]])
