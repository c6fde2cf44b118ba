"""The model: incremental = from scratch = literal, in both numerics and for all kinds of layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from racegate.scenario.settings import LayerKind, ModelPart, ModelSpec, Numerics, StateLife
from racegate_reference.model import Cache, build_model
from racegate_reference.paths import Path
from racegate_reference.recompute import recompute
from racegate_reference.sampling import draw_token, number_at
from reference_literal import Literal
from reference_scenarios import model_specs, request
from support import JUDGED

ALL_KINDS = (LayerKind.GATED_DELTA, LayerKind.ATTENTION, LayerKind.MAMBA2)


def assert_equal(actual: Any, expected: Any, spec: ModelSpec) -> None:
    """Bits in exact; in float what two orders of summation in float64 may differ by."""
    if spec.numerics is Numerics.EXACT:
        np.testing.assert_array_equal(actual, np.asarray(expected, dtype=np.uint32))
    else:
        np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-11)


@given(spec=model_specs(), data=st.data())
@settings(max_examples=40)
def test_incremental_is_from_scratch(spec: ModelSpec, data: st.DataObject) -> None:
    tokens = data.draw(st.lists(st.integers(0, spec.vocab_size - 1), min_size=3, max_size=9))
    model = build_model(spec)
    path = Path(model, request(prompt=tuple(tokens)))
    for length in range(1, len(tokens) + 1):
        scratch = recompute(model, tokens[:length])
        assert_equal(path.hidden(length - 1), scratch.hidden[-1], spec)
        for index, state in enumerate(scratch.state):
            if isinstance(state, Cache):
                assert_equal(path.kv(index, 0, length), state.kv, spec)
            else:
                assert_equal(path.recurrent(index, length).state, state.state, spec)
                assert_equal(path.recurrent(index, length).conv, state.conv, spec)


@pytest.mark.parametrize("numerics", JUDGED)
@pytest.mark.parametrize("layers", [*((kind,) for kind in LayerKind), ALL_KINDS])
def test_from_scratch_is_literal(numerics: Numerics, layers: tuple[LayerKind, ...]) -> None:
    assert_literal(
        ModelSpec(
            numerics=numerics,
            layers=layers,
            vocab_size=7,
            hidden_size=3,
            heads=2,
            head_size=4,
            state_size=3,
            conv_width=3,
        )
    )


@pytest.mark.parametrize("numerics", JUDGED)
@pytest.mark.parametrize("parts", [(), *((part,) for part in ModelPart), tuple(ModelPart)])
def test_real_shapes_are_literal(numerics: Numerics, parts: tuple[ModelPart, ...]) -> None:
    """Key heads, groups, parts, a partial rotary and an MLP; time steps of states that last."""
    assert_literal(
        ModelSpec(
            numerics=numerics,
            layers=ALL_KINDS,
            vocab_size=7,
            hidden_size=3,
            heads=4,
            kv_heads=2,
            key_heads=1,
            groups=2,
            head_size=4,
            rotary_size=2,
            state_size=2,
            conv_width=3,
            mlp_size=2,
            parts=parts,
            state_life=StateLife.LONG,
        )
    )


def assert_literal(spec: ModelSpec) -> None:
    tokens = [3, 0, 6, 3, 2]
    literal = Literal(spec)
    hidden, logits = literal.run(tokens)
    scratch = recompute(build_model(spec), tokens)
    assert_equal(scratch.hidden, hidden, spec)
    assert_equal(scratch.logits, logits, spec)
    for index, state in enumerate(scratch.state):
        if isinstance(state, Cache):
            assert_equal(state.kv, literal.kv[index], spec)
        else:
            assert_equal(state.state, literal.state[index], spec)
            assert_equal(state.conv, literal.conv[index], spec)


def test_state_before_the_first_token_is_zero() -> None:
    path = Path(build_model(ModelSpec()), request())
    assert not path.recurrent(0, 0).state.any()
    assert not path.recurrent(0, 0).conv.any()
    assert path.kv(2, 0, 0).shape == (0, 16)


@given(spec=model_specs(), temperature=st.sampled_from((0.0, 0.7)))
@settings(max_examples=15)
def test_path_draws_each_token_from_scratch(spec: ModelSpec, temperature: float) -> None:
    model = build_model(spec)
    asked = request(prompt=(1, 0), seed=5, temperature=temperature)
    tokens = list(asked.prompt)
    while len(tokens) < 8:
        logits = recompute(model, tokens).logits[-1]
        number = number_at(asked.seed, len(tokens))
        tokens.append(draw_token(logits, number=number, temperature=temperature).token)
    assert Path(model, asked).tokens(0, 8) == tuple(tokens)
