"""The hybrid decoder as a fold: one token after another (DEFINITION section 2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from racegate.scenario.spec import UNJUDGED, LayerKind, ModelSpec, ScenarioError
from racegate.scenario.spec import Numerics as NumericsKind
from racegate_reference.numbers import Array, Exact, Float, Numerics
from racegate_reference.parameters import (
    Shapes,
    draft_shapes,
    draw_parameters,
    embedding_shapes,
    layer_shapes,
)


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: its kind and its parameters by name."""

    kind: LayerKind
    weights: Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Model:
    """Everything that does not depend on tokens. `draft` holds the mtp drafter's parameters."""

    spec: ModelSpec
    numerics: Numerics
    layers: tuple[Layer, ...]
    embed: Array
    lm_head: Array
    draft: Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Recurrent:
    """A recurrent layer after some tokens: conv [C, W - 1] raw inputs, state [H, P, N]."""

    conv: Array
    state: Array


@dataclass(frozen=True, slots=True)
class Cache:
    """An attention layer after n tokens: rot(k) and v of each position, kv [n, 2HP]."""

    kv: Array


LayerState = Recurrent | Cache
ModelState = tuple[LayerState, ...]


@dataclass(frozen=True, slots=True)
class Output:
    """What one token yields: hidden [D] before the final norm, logits [V], the state behind it."""

    hidden: Array
    logits: Array
    state: ModelState


def build_model(spec: ModelSpec) -> Model:
    """The model of a scenario, with all parameters drawn."""
    if not spec.numerics.is_judged:
        raise ScenarioError("scenario", "$.model.numerics", f"{spec.numerics} {UNJUDGED}")
    numerics: Numerics = Exact() if spec.numerics is NumericsKind.EXACT else Float()

    def draw(shapes: Shapes, prefix: str) -> Mapping[str, Array]:
        return draw_parameters(shapes, seed=spec.seed, prefix=prefix, numerics=numerics)

    ends = draw(embedding_shapes(spec), "")
    return Model(
        spec=spec,
        numerics=numerics,
        layers=tuple(
            Layer(kind, draw(layer_shapes(spec, kind), f"layer.{index}."))
            for index, kind in enumerate(spec.layers)
        ),
        embed=ends["embed"],
        lm_head=ends["lm_head"],
        draft=draw(draft_shapes(spec), "draft."),
    )


def initial_state(model: Model) -> ModelState:
    """The state before the first token: zeros, and empty caches."""
    return tuple(_initial_layer_state(model, layer) for layer in model.layers)


def empty_cache(model: Model) -> Array:
    """The cache of an attention layer before the first token, [0, 2HP]."""
    width = 2 * model.spec.heads * model.spec.head_size
    return np.zeros((0, width), dtype=model.numerics.dtype)


def _initial_layer_state(model: Model, layer: Layer) -> LayerState:
    spec, dtype = model.spec, model.numerics.dtype
    if layer.kind is LayerKind.ATTENTION:
        return Cache(empty_cache(model))
    channels, width = layer.weights["conv"].shape
    return Recurrent(
        conv=np.zeros((channels, width - 1), dtype=dtype),
        state=np.zeros((spec.heads, spec.head_size, spec.state_size), dtype=dtype),
    )


def forward(model: Model, state: ModelState, token: int, place: Array) -> Output:
    """One token after the tokens that `state` stands for. place: [3], its coordinates"""
    h = model.embed[token]
    after: list[LayerState] = []
    for layer, before in zip(model.layers, state, strict=True):
        x = model.numerics.norm(h)
        f, layer_state = _layer(model, layer, before, x, place)
        h = h + f
        after.append(layer_state)
    return Output(hidden=h, logits=head(model, h), state=tuple(after))


def head(model: Model, hidden: Array) -> Array:
    """Logits [V] from a hidden state [D]."""
    return np.asarray(model.lm_head @ model.numerics.norm(hidden))


def _layer(
    model: Model, layer: Layer, before: LayerState, x: Array, place: Array
) -> tuple[Array, LayerState]:
    if isinstance(before, Cache):
        f, kv = attention(model, layer.weights, before.kv, x, place)
        return f, Cache(kv)
    step = mamba2 if layer.kind is LayerKind.MAMBA2 else gated_delta
    return step(model, layer.weights, before, x)


def _convolve(
    model: Model, weights: Mapping[str, Array], before: Recurrent, raw: Array
) -> tuple[Array, Array]:
    """The causal convolution of the raw inputs [C], and the conv state behind them."""
    window = np.concatenate([before.conv, raw[:, None]], axis=1)
    return model.numerics.act(np.einsum("cw,cw->c", weights["conv"], window)), window[:, 1:]


def mamba2(
    model: Model, weights: Mapping[str, Array], before: Recurrent, x: Array
) -> tuple[Array, Recurrent]:
    """One token of an SSD layer (Dao and Gu 2024): x [D] -> [D]."""
    spec, numerics = model.spec, model.numerics
    hp, n = spec.heads * spec.head_size, spec.state_size
    z, xbc, dt = np.split(weights["in_proj"] @ x, [hp, 2 * hp + 2 * n])
    convolved, conv = _convolve(model, weights, before, xbc)
    value, b, c = np.split(convolved, [hp, hp + n])
    value = value.reshape(spec.heads, spec.head_size)
    decay, scale = numerics.mamba2_rates(dt, weights["dt_bias"], weights["a_log"])
    state = decay[:, None, None] * before.state + (scale[:, None] * value)[:, :, None] * b
    y = state @ c + weights["skip"][:, None] * value
    return weights["out_proj"] @ numerics.gate(y.ravel(), z), Recurrent(conv, state)


def gated_delta(
    model: Model, weights: Mapping[str, Array], before: Recurrent, x: Array
) -> tuple[Array, Recurrent]:
    """One token of a gated delta rule layer (Yang et al. 2024): x [D] -> [D]."""
    spec, numerics = model.spec, model.numerics
    hp, hn = spec.heads * spec.head_size, spec.heads * spec.state_size
    qkv, z, b, g = np.split(
        weights["in_proj"] @ x, [2 * hn + hp, 2 * hn + 2 * hp, 2 * hn + 2 * hp + spec.heads]
    )
    convolved, conv = _convolve(model, weights, before, qkv)
    q, k, v = np.split(convolved, [hn, 2 * hn])
    q, k = numerics.directions(q.reshape(spec.heads, -1), k.reshape(spec.heads, -1))
    v = v.reshape(spec.heads, spec.head_size)
    decay, beta = numerics.gated_delta_rates(b, g, weights["dt_bias"], weights["a_log"])
    recalled = np.einsum("hpn,hn->hp", before.state, k)
    forgotten = before.state - (beta[:, None] * recalled)[:, :, None] * k[:, None, :]
    written = (beta[:, None] * v)[:, :, None] * k[:, None, :]
    state = decay[:, None, None] * forgotten + written
    o = numerics.head_norm(np.einsum("hpn,hn->hp", state, q))
    return weights["out_proj"] @ numerics.gate(o.ravel(), z), Recurrent(conv, state)


def attention(
    model: Model, weights: Mapping[str, Array], kv: Array, x: Array, place: Array
) -> tuple[Array, Array]:
    """One token at position len(kv) of causal attention: x [D] -> ([D], kv with its entry).

    place: [3], the token's coordinates
    """
    spec, numerics = model.spec, model.numerics
    hp = spec.heads * spec.head_size
    q, k, v = (weights["qkv_proj"] @ x).reshape(3, spec.heads, spec.head_size)
    q, k = numerics.rot(np.stack([q, k]), pair_positions(spec, np.stack([place, place])))
    kv = np.concatenate([kv, np.concatenate([k.ravel(), v.ravel()])[None]])
    shape = (len(kv), spec.heads, spec.head_size)
    o = numerics.attend(q, kv[:, :hp].reshape(shape), kv[:, hp:].reshape(shape))
    return weights["out_proj"] @ numerics.attended(o).ravel(), kv


def pair_positions(spec: ModelSpec, places: Array) -> Array:
    """[n, P / 2]: the coordinate that each pair of a head turns with, of places [n, 3]."""
    section = spec.mrope_section or (spec.head_size // 2, 0, 0)
    return np.repeat(places, section, axis=1)
