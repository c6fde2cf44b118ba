"""How long a wrong state shows: with `state_life = long` for hundreds of tokens."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import numpy as np
import pytest

from racegate.scenario.settings import LayerKind, ModelSpec, Numerics, StateLife
from racegate_reference.model import (
    Model,
    ModelState,
    Recurrent,
    build_model,
    forward,
    initial_state,
)

TOKENS = 300
PLACE = np.zeros(3, dtype=int)  # no layer asks for it


def model_of(life: StateLife) -> Model:
    layers = (LayerKind.MAMBA2, LayerKind.GATED_DELTA)
    return build_model(
        ModelSpec(numerics=Numerics.FLOAT32, layers=layers, state_size=16, state_life=life)
    )


def after(model: Model, state: ModelState, tokens: list[int]) -> ModelState:
    for token in tokens:
        state = forward(model, state, token, PLACE).state
    return state


def errors(model: Model) -> Iterator[list[float]]:
    """By layer, behind every token: how far a request is off that began with another's states."""
    random = Random(3)
    tokens = [random.randrange(model.spec.vocab_size) for _ in range(TOKENS + 40)]
    right = after(model, initial_state(model), tokens[:20])
    other = after(model, initial_state(model), tokens[20:40])
    wrong: ModelState = tuple(
        Recurrent(own.conv, taken.state)
        for own, taken in zip(right, other, strict=True)
        if isinstance(own, Recurrent) and isinstance(taken, Recurrent)
    )
    for token in tokens[40:]:
        right, wrong = (after(model, state, [token]) for state in (right, wrong))
        yield [
            float(np.abs(a.state - b.state).max() / np.abs(a.state).max())
            for a, b in zip(right, wrong, strict=True)
            if isinstance(a, Recurrent) and isinstance(b, Recurrent)
        ]


@pytest.mark.parametrize("life", StateLife)
def test_a_wrong_state_is_seen_three_hundred_tokens_later(life: StateLife) -> None:
    """In either kind of layer, well above what float32 is compared with."""
    seen = list(errors(model_of(life)))
    lasts = life is StateLife.LONG
    assert (min(seen[-1]) > 1e-3) is lasts
    assert (max(seen[50]) > 1e-3) is lasts
