"""The pieces of the model without state: each Triton launcher against its twin."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernel_twins import DTYPES, compare, int32, sliced, values


@DTYPES
@pytest.mark.parametrize("width", [1, 5, 64])
def test_embedding_outside_the_vocabulary_is_poison(dtype: Any, width: int) -> None:
    embed = values(np.random.default_rng(0), (7, width), dtype)
    rows = compare("embedding", int32(6, -1, 0, 7, 3, 0x7F7F7F7F, -(2**31)), embed).returned
    assert (rows[[0, 2, 4]] == embed[[6, 0, 3]]).all()


@DTYPES
@pytest.mark.parametrize("shape", [(0, 4), (1, 1), (5, 7), (3, 64), (2, 3, 5)])
def test_norm(dtype: Any, shape: tuple[int, ...]) -> None:
    compare("norm", values(np.random.default_rng(1), shape, dtype))


@DTYPES
def test_norm_of_a_slice(dtype: Any) -> None:
    compare("norm", sliced(values(np.random.default_rng(2), (4, 6), dtype)))


@DTYPES
def test_head_norm(dtype: Any) -> None:
    compare("head_norm", values(np.random.default_rng(3), (3, 2, 5), dtype))


@DTYPES
@pytest.mark.parametrize("shape", [(0, 4), (1, 1), (5, 33), (3, 64)])
def test_gate_with_a_sliced_input(dtype: Any, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(4)
    compare("gate", values(rng, shape, dtype), sliced(values(rng, shape, dtype)))


def test_gate_of_large_floats_neither_overflows_nor_loses_the_sign() -> None:
    z = np.array([[-1e4, -100.0, -1.0, 0.0, 1.0, 100.0, 1e4]], np.float32)
    compare("gate", np.ones_like(z), z)


@DTYPES
def test_attention_gate(dtype: Any) -> None:
    compare("attention_gate", values(np.random.default_rng(5), (3, 10), dtype))


@DTYPES
@pytest.mark.parametrize("sizes", [(1, 1, 1), (3, 5, 7), (2, 64, 65), (2, 130, 3), (0, 4, 4)])
def test_linear(dtype: Any, sizes: tuple[int, int, int]) -> None:
    tokens, size_in, size_out = sizes
    rng = np.random.default_rng(6)
    x, weight = values(rng, (tokens, size_in), dtype), values(rng, (size_out, size_in), dtype)
    compare("linear", x, weight / np.float32(16) if dtype == np.float32 else weight)


@DTYPES
def test_linear_of_a_slice_with_leading_dimensions(dtype: Any) -> None:
    rng = np.random.default_rng(7)
    weight = values(rng, (3, 4), dtype)
    compare("linear", sliced(values(rng, (5, 4), dtype)), weight)
    compare("linear", values(rng, (2, 3, 4), dtype), weight)


@DTYPES
@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("head_size", [2, 6, 64])
def test_rotary_of_a_slice_at_far_positions(dtype: Any, heads: int, head_size: int) -> None:
    x = sliced(values(np.random.default_rng(8), (4, heads, head_size), dtype))
    compare("rotary", x, int32(0, 1, 31, 131_071))


def test_exact_rotary_of_odd_heads_and_negative_positions() -> None:
    x = values(np.random.default_rng(9), (3, 2, 5), np.uint32)
    compare("rotary", x, int32(-1, 0x7F7F7F7F, 0))


@DTYPES
@pytest.mark.parametrize("section", [(1, 0, 0), (0, 1, 2), (16, 8, 8)])
def test_mrope_of_a_slice(dtype: Any, section: tuple[int, ...]) -> None:
    x = sliced(values(np.random.default_rng(8), (4, 3, 2 * sum(section)), dtype))
    places = np.array([[0, 0, 0], [5, 6, 7], [-3, 131_071, 2], [9, 9, 9]], np.int32)
    compare("mrope", x, places, section=section)


@DTYPES
def test_mrope_of_text_is_rotary(dtype: Any) -> None:
    x = values(np.random.default_rng(8), (4, 2, 8), dtype)
    positions = int32(0, 1, 31, 131_071)
    places = positions[:, None].repeat(3, axis=1)
    turned = compare("mrope", x, places, section=(2, 1, 1)).returned
    np.testing.assert_array_equal(turned, compare("rotary", x, positions).returned)


@DTYPES
@pytest.mark.parametrize("vocab_size", [1, 3, 100, 5000])
def test_argmax_takes_the_lowest_of_equals(dtype: Any, vocab_size: int) -> None:
    logits = values(np.random.default_rng(10), (4, vocab_size), dtype)
    logits[0] = 0
    logits[1, vocab_size // 2 :] = logits[1].max()
    logits[2, -1] = logits[2].max()
    compare("argmax", logits)


def test_exact_argmax_is_unsigned() -> None:
    logits = np.array([[1, 0x80000000, 0x7FFFFFFF], [0xFFFFFFFF, 0, 0xFFFFFFFF]], np.uint32)
    assert compare("argmax", logits).returned.tolist() == [1, 0]


def test_float_argmax_of_zeros_infinities_and_poison() -> None:
    nan, inf = np.nan, np.inf
    logits = [[-0.0, 0.0, -1.0], [-inf, -inf, -inf], [1.0, nan, inf], [-inf, -3.0, -2.0]]
    assert compare("argmax", np.array(logits, np.float32)).returned.tolist() == [0, 0, 1, 2]
