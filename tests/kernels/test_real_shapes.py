"""What layers of real models have more: the launchers against their twins, and sharing against the
same things repeated, weights and biases against what they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernel_batches import BLOCKS, Rows, decode_rows
from kernel_twins import (
    DTYPES,
    FLOAT_TOLERANCE,
    Array,
    compare,
    int32,
    run_eager,
    sliced,
    starts,
    values,
)

# Two things are shared by two heads each.
HEADS, SHARED, SIZE, STATE = 4, 2, 3, 5


def rows() -> Rows:
    return decode_rows([3, 1, 2], [1, 2, 3], columns=3)


def draw(dtype: Any, *shape: int) -> Array:
    return values(np.random.default_rng(sum(shape)), shape, dtype)


def assert_close(found: Array, expected: Array) -> None:
    """Bits in exact."""
    tolerance = 0 if expected.dtype == np.uint32 else FLOAT_TOLERANCE
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@DTYPES
def test_mamba2_groups(dtype: Any) -> None:
    batch = rows()
    x, dt = draw(dtype, batch.tokens, HEADS, SIZE), draw(dtype, batch.tokens, HEADS)
    parameters = [draw(dtype, HEADS) for _ in range(3)]
    shared = [draw(dtype, batch.tokens, SHARED, STATE) for _ in "bc"]
    state = draw(dtype, BLOCKS, HEADS, SIZE, STATE)
    behind = (dt, *parameters, state, batch.table, *batch.counts)
    found = compare("mamba2_update", x, *(sliced(b.reshape(len(b), -1)) for b in shared), *behind)
    repeated = (b.repeat(HEADS // SHARED, axis=1).reshape(len(b), -1) for b in shared)
    expected = run_eager("mamba2_update", x, *repeated, *behind)
    assert_close(found.args[7], expected.args[7])
    assert_close(found.returned, expected.returned)


@DTYPES
def test_gated_delta_shared_keys(dtype: Any) -> None:
    batch = rows()
    shared = [draw(dtype, batch.tokens, SHARED, STATE) for _ in "qk"]
    v, b = draw(dtype, batch.tokens, HEADS, SIZE), draw(dtype, batch.tokens, HEADS)
    state = draw(dtype, BLOCKS, HEADS, SIZE, STATE)
    behind = (v, b, b, draw(dtype, HEADS), draw(dtype, HEADS), state, batch.table, *batch.counts)
    found = compare("gated_delta_update", *map(sliced, shared), *behind)
    repeated = (x.repeat(HEADS // SHARED, axis=1) for x in shared)
    expected = run_eager("gated_delta_update", *repeated, *behind)
    assert_close(found.returned, expected.returned)


@DTYPES
def test_attention_shared_keys(dtype: Any) -> None:
    lengths, computed, block = [3, 1], [0, 6], 4
    query_start, table = starts(lengths), int32(1, 2, 3, 4, 5, 6).reshape(2, 3)
    positions = int32(0, 1, 2, 6)
    q = sliced(draw(dtype, 4, HEADS, SIZE))
    kept = draw(dtype, BLOCKS, block, 2, SHARED, SIZE)
    behind = (table, query_start, int32(*computed) + int32(*lengths), positions)
    cache = kept.reshape(BLOCKS, block, -1)
    found = compare("paged_attention", q, cache, *behind)
    repeated = kept.repeat(HEADS // SHARED, axis=3).reshape(BLOCKS, block, -1)
    expected = run_eager("paged_attention", q, repeated, *behind)
    assert_close(found.returned, expected.returned)


@DTYPES
def test_partial_rotary_leaves_the_rest(dtype: Any) -> None:
    width = 4
    x, positions = draw(dtype, 4, 2, 6), int32(0, 1, 31, 131_071)
    turned = compare("rotary", sliced(x), positions, width=width).returned
    np.testing.assert_array_equal(turned[..., width:], x[..., width:])
    alone = run_eager("rotary", x[..., :width].copy(), positions).returned
    assert_close(turned[..., :width], alone)
    section, places = (1, width // 2 - 1, 0), positions[:, None].repeat(3, axis=1)
    of_text = compare("mrope", sliced(x), places, section=section).returned
    np.testing.assert_array_equal(of_text, turned)


@DTYPES
def test_weights_and_biases(dtype: Any) -> None:
    x, weight, bias = draw(dtype, 3, 8), draw(dtype, 8), draw(dtype, 5)
    plain = run_eager("norm", x).returned
    weighted = compare("norm", sliced(x), weight).returned
    assert_close(weighted, plain * weight)
    heads = draw(dtype, 3, 2, 8)
    normed = run_eager("head_norm", heads).returned
    weighted = compare("head_norm", heads, weight).returned
    assert_close(weighted, normed * weight)
    matrix = draw(dtype, 5, 8)
    product = run_eager("linear", x, matrix).returned
    assert_close(compare("linear", x, matrix, bias).returned, product + bias)


@DTYPES
def test_norm_of_groups(dtype: Any) -> None:
    x, weight = draw(dtype, 3, 12), draw(dtype, 12)
    found = compare("norm", x, weight, groups=3).returned
    alone = run_eager("norm", x.reshape(3, 3, 4)).returned.reshape(3, 12)
    assert_close(found, alone * weight)


@DTYPES
def test_gated_attention(dtype: Any) -> None:
    o, z = draw(dtype, 3, 10), draw(dtype, 3, 10)
    found = compare("attention_gate", o, sliced(z)).returned
    if dtype is np.float32:
        assert_close(found, o / (1 + np.exp(-z)))
    else:
        assert_close(found, run_eager("gate", o, z).returned)


@DTYPES
def test_convolution_with_a_bias(dtype: Any) -> None:
    """A bias is a tap on inputs of one."""
    batch = rows()
    x, window = np.ones((batch.tokens, 3), dtype), np.ones((BLOCKS, 3, 5), dtype)
    weight, bias = draw(dtype, 3, 4), draw(dtype, 3)
    behind = (window, batch.table[:, 0], *batch.counts)
    found = compare("conv_update", sliced(x), weight, *behind, bias).returned
    weight[:, -1] += bias
    expected = run_eager("conv_update", x, weight, *behind).returned
    assert_close(found, expected)
