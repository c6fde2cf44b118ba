"""Hashing and parameters against the literal form and known values."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import reference_literal as literal
from racegate.scenario.settings import LayerKind, ModelSpec, Numerics
from racegate_reference import numbers
from racegate_reference.model import build_model
from racegate_reference.parameters import draft_shapes, layer_shapes

WORD = st.integers(0, 2**32 - 1)


def test_fnv_has_the_published_values() -> None:
    assert [numbers.fnv(text) for text in ("", "a", "foobar")] == [
        0x811C9DC5,
        0xE40C292C,
        0xBF9CF968,
    ]


@given(WORD)
@settings(max_examples=50)
def test_mix_is_the_literal_one_and_invertible(word: int) -> None:
    mixed = numbers.mix_word(word)
    assert mixed == literal.mix(word)
    x = mixed ^ (mixed >> 16)
    x = x * pow(0x846CA68B, -1, 2**32) % 2**32
    x = x ^ (x >> 15) ^ (x >> 30)
    x = x * pow(0x7FEB352D, -1, 2**32) % 2**32
    assert x ^ (x >> 16) == word


@given(seed=WORD, name=st.text(max_size=8), count=st.integers(1, 20))
@settings(max_examples=25)
def test_bits_are_the_literal_ones(seed: int, name: str, count: int) -> None:
    expected = [literal.bits(seed, name, i) for i in range(count)]
    assert numbers.bits(seed, name, count).tolist() == expected


def test_float_parameters_spread_by_fan_in() -> None:
    spec = ModelSpec(numerics=Numerics.FLOAT32, hidden_size=16, vocab_size=200)
    model = build_model(spec)
    assert model.ends["embed"].dtype == np.float64
    for values, fan_in in (
        (model.ends["embed"], 1),
        (model.ends["lm_head"], 16),
        (model.draft["fc"], 32),
    ):
        bound = math.sqrt(3 / fan_in)
        assert 0.95 * bound < np.abs(values).max() <= bound
        assert abs(values.mean()) < 0.1 * bound


def test_parameter_shapes_are_those_of_the_table() -> None:
    spec = ModelSpec(hidden_size=5, heads=3, head_size=4, state_size=2, conv_width=3)
    hp, hn, n, d, h, w = 12, 6, 2, 5, 3, 3
    per_head = {"dt_bias": ((h,), 3), "a_log": ((h,), 3)}
    assert layer_shapes(spec, LayerKind.MAMBA2) == {
        "in_proj": ((2 * hp + 2 * n + h, d), d),
        "conv": ((hp + 2 * n, w), w),
        **per_head,
        "skip": ((h,), 3),
        "out_proj": ((d, hp), hp),
    }
    assert layer_shapes(spec, LayerKind.GATED_DELTA) == {
        "in_proj": ((2 * hn + 2 * hp + 2 * h, d), d),
        "conv": ((2 * hn + hp, w), w),
        **per_head,
        "out_proj": ((d, hp), hp),
    }
    projections = {"qkv_proj": ((3 * hp, d), d), "out_proj": ((d, hp), hp)}
    assert layer_shapes(spec, LayerKind.ATTENTION) == projections
    assert draft_shapes(spec) == {"fc": ((d, 2 * d), 2 * d), **projections}


def test_sigmoid_and_softplus_do_not_overflow() -> None:
    x = np.array([-1e4, 0.0, 1e4])
    assert numbers.sigmoid(x).tolist() == [0.0, 0.5, 1.0]
    assert numbers.softplus(x).tolist() == [0.0, math.log(2), 1e4]
