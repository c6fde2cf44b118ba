"""The hybrid decoder as a fold: one token after another (DEFINITION section 2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from racegate.scenario.settings import UNJUDGED, LayerKind, ModelSpec
from racegate.scenario.settings import Numerics as NumericsKind
from racegate.scenario.spec import ScenarioError
from racegate_reference.numbers import Array, Exact, Float, Numerics
from racegate_reference.parameters import (
    Shapes,
    draft_shapes,
    draw_parameters,
    embedding_shapes,
    layer_shapes,
    mlp_shapes,
)


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: its kind and its parameters by name."""

    kind: LayerKind
    weights: Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Model:
    """Everything that does not depend on tokens. `ends` holds the parameters before and behind the
    layers, `draft` those of the mtp drafter.
    """

    spec: ModelSpec
    numerics: Numerics
    layers: tuple[Layer, ...]
    ends: Mapping[str, Array]
    draft: Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Recurrent:
    """A recurrent layer after some tokens: conv [C, W - 1] raw inputs, state [H, P, N]."""

    conv: Array
    state: Array


@dataclass(frozen=True, slots=True)
class Cache:
    """An attention layer after n tokens: rot(k) and v of each position, kv [n, 2KP]."""

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
        return draw_parameters(shapes, spec=spec, prefix=prefix, numerics=numerics)

    return Model(
        spec=spec,
        numerics=numerics,
        layers=tuple(
            Layer(kind, draw({**layer_shapes(spec, kind), **mlp_shapes(spec)}, f"layer.{index}."))
            for index, kind in enumerate(spec.layers)
        ),
        ends=draw(embedding_shapes(spec), ""),
        draft=draw(draft_shapes(spec), "draft."),
    )


def initial_state(model: Model) -> ModelState:
    """The state before the first token: zeros, and empty caches."""
    return tuple(_initial_layer_state(model, layer) for layer in model.layers)


def empty_cache(model: Model) -> Array:
    """The cache of an attention layer before the first token, [0, 2KP]."""
    width = 2 * model.spec.kv_head_count * model.spec.head_size
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
    h = model.ends["embed"][token]
    after: list[LayerState] = []
    for layer, before in zip(model.layers, state, strict=True):
        x = normed(model, h, layer.weights.get("norm"))
        f, layer_state = _layer(model, layer, before, x, place)
        h = h + f
        h = h + mlp(model, layer.weights, h)
        after.append(layer_state)
    return Output(hidden=h, logits=head(model, h), state=tuple(after))


def head(model: Model, hidden: Array) -> Array:
    """Logits [V] from a hidden state [D], or of several."""
    return normed(model, hidden, model.ends.get("final_norm")) @ model.ends["lm_head"].T


def normed(model: Model, x: Array, weight: Array | None) -> Array:
    """The norm over the last axis, weighted if there is a weight."""
    plain = model.numerics.norm(x)
    return plain if weight is None else plain * weight


def projected(weights: Mapping[str, Array], name: str, x: Array) -> Array:
    """x [..., D_in] through the projection `name`, with its bias if there is one."""
    product = x @ weights[f"{name}_proj"].T
    return product + weights[f"{name}_bias"] if f"{name}_bias" in weights else product


def cut(x: Array, *ends: int) -> list[Array]:
    """The parts of x along its last axis that end there, and the rest."""
    return [x[..., first:end] for first, end in pairwise((0, *ends, x.shape[-1]))]


def mlp(model: Model, weights: Mapping[str, Array], h: Array) -> Array:
    """What the gated MLP behind a layer adds to h [..., D]: nothing where there is none."""
    if not model.spec.mlp_size:
        return np.zeros_like(h)
    inner = normed(model, h, weights.get("mlp_norm")) @ weights["mlp_in"].T
    gate, up = cut(inner, inner.shape[-1] // 2)
    return np.asarray(model.numerics.gate(up, gate) @ weights["mlp_out"].T)


def gated(model: Model, weights: Mapping[str, Array], y: Array, z: Array) -> Array:
    """What mamba2's output projection is applied to; y, z: [..., HP]."""
    o = model.numerics.gate(y, z)
    if "gated_norm" not in weights:
        return o
    groups = o.reshape(*o.shape[:-1], model.spec.groups, -1)
    return model.numerics.norm(groups).reshape(o.shape) * weights["gated_norm"]


def each_head(model: Model, shared: Array, axis: int) -> Array:
    """What heads share, by head: consecutive heads share one."""
    if shared.shape[axis] == model.spec.heads:
        return shared
    return np.repeat(shared, model.spec.heads // shared.shape[axis], axis=axis)


def split_attention(
    model: Model, weights: Mapping[str, Array], x: Array
) -> tuple[Array, Array, Array, Array | None]:
    """Query [..., H, P], key and value [..., K, P], and what gates the output [..., H, P].

    x: [..., D]
    """
    spec, size = model.spec, model.spec.head_size
    hp, kp = spec.heads * size, spec.kv_head_count * size
    parts = cut(projected(weights, "qkv", x), hp, hp + kp, hp + 2 * kp)
    q, k, v, gate = (part.reshape(*part.shape[:-1], -1, size) for part in parts)
    if "q_norm" in weights:
        q, k = normed(model, q, weights["q_norm"]), normed(model, k, weights["k_norm"])
    return q, k, v, gate if gate.size else None


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
    convolved = np.einsum("cw,cw->c", weights["conv"], window)
    if "conv_bias" in weights:
        convolved = convolved + weights["conv_bias"]
    return model.numerics.act(convolved), window[:, 1:]


def mamba2(
    model: Model, weights: Mapping[str, Array], before: Recurrent, x: Array
) -> tuple[Array, Recurrent]:
    """One token of an SSD layer (Dao and Gu 2024): x [D] -> [D]."""
    spec, numerics = model.spec, model.numerics
    hp, gn = spec.heads * spec.head_size, spec.groups * spec.state_size
    z, xbc, dt = cut(projected(weights, "in", x), hp, 2 * hp + 2 * gn)
    convolved, conv = _convolve(model, weights, before, xbc)
    value, b, c = cut(convolved, hp, hp + gn)
    value = value.reshape(spec.heads, spec.head_size)
    b = each_head(model, b.reshape(spec.groups, -1), 0)
    c = each_head(model, c.reshape(spec.groups, -1), 0)
    decay, scale = numerics.mamba2_rates(dt, weights["dt_bias"], weights["a_log"])
    written = (scale[:, None] * value)[:, :, None] * b[:, None, :]
    state = decay[:, None, None] * before.state + written
    y = np.einsum("hpn,hn->hp", state, c) + weights["skip"][:, None] * value
    f = projected(weights, "out", gated(model, weights, y.ravel(), z))
    return f, Recurrent(conv, state)


def gated_delta(
    model: Model, weights: Mapping[str, Array], before: Recurrent, x: Array
) -> tuple[Array, Recurrent]:
    """One token of a gated delta rule layer (Yang et al. 2024): x [D] -> [D]."""
    spec, numerics = model.spec, model.numerics
    keys, hp = spec.key_head_count, spec.heads * spec.head_size
    kn = keys * spec.state_size
    ends = (2 * kn + hp, 2 * kn + 2 * hp, 2 * kn + 2 * hp + spec.heads)
    qkv, z, b, g = cut(projected(weights, "in", x), *ends)
    convolved, conv = _convolve(model, weights, before, qkv)
    q, k, v = cut(convolved, kn, 2 * kn)
    q, k = numerics.directions(q.reshape(keys, -1), k.reshape(keys, -1))
    q, k = each_head(model, q, 0), each_head(model, k, 0)
    v = v.reshape(spec.heads, spec.head_size)
    decay, beta = numerics.gated_delta_rates(b, g, weights["dt_bias"], weights["a_log"])
    recalled = np.einsum("hpn,hn->hp", before.state, k)
    forgotten = before.state - (beta[:, None] * recalled)[:, :, None] * k[:, None, :]
    written = (beta[:, None] * v)[:, :, None] * k[:, None, :]
    state = decay[:, None, None] * forgotten + written
    o = numerics.head_norm(np.einsum("hpn,hn->hp", state, q))
    if "head_norm" in weights:
        o = o * weights["head_norm"]
    f = projected(weights, "out", numerics.gate(o.ravel(), z))
    return f, Recurrent(conv, state)


def attention(
    model: Model, weights: Mapping[str, Array], kv: Array, x: Array, place: Array
) -> tuple[Array, Array]:
    """One token at position len(kv) of causal attention: x [D] -> ([D], kv with its entry).

    place: [3], the token's coordinates
    """
    numerics, kp = model.numerics, kv.shape[1] // 2
    q, k, v, gate = split_attention(model, weights, x)
    turned_by = pair_positions(model.spec, place[None])
    q, k = numerics.rot(q[None], turned_by)[0], numerics.rot(k[None], turned_by)[0]
    kv = np.concatenate([kv, np.concatenate([k.ravel(), v.ravel()])[None]])
    keys, values = (
        each_head(model, part.reshape(len(kv), *k.shape), 1) for part in (kv[:, :kp], kv[:, kp:])
    )
    o = gate_output(model, numerics.attend(q, keys, values), gate)
    return projected(weights, "out", o.ravel()), kv


def gate_output(model: Model, o: Array, gate: Array | None) -> Array:
    """What attention's output projection is applied to; o, gate: [..., H, P]."""
    numerics = model.numerics
    return numerics.attended(o) if gate is None else numerics.output_gate(o, gate)


def pair_positions(spec: ModelSpec, places: Array) -> Array:
    """[n, R / 2]: the coordinate that each pair of a head turns with, of places [n, 3]."""
    section = spec.mrope_section or (spec.rotary_width // 2, 0, 0)
    return np.repeat(places, section, axis=1)
