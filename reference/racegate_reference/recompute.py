"""The hybrid decoder from scratch: all tokens at once, layer by layer (DEFINITION section 2).

A second way to the same values. Projections and convolutions run over the whole sequence, and the
recurrences are unrolled into sums of products instead of being folded. Nothing is carried over
from one call to the next, so it shows what the incremental form must agree with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from racegate.scenario.settings import LayerKind
from racegate_reference.model import (
    Cache,
    LayerState,
    Model,
    Recurrent,
    each_head,
    gate_output,
    gated,
    head,
    mlp,
    normed,
    pair_positions,
    projected,
    split_attention,
)
from racegate_reference.numbers import Array

LayerFunction = Callable[[Model, Mapping[str, Array], Array], tuple[Array, LayerState]]


@dataclass(frozen=True, slots=True)
class Sequential:
    """A sequence of T tokens: hidden [T, D], logits [T, V], the layers' states behind the last."""

    hidden: Array
    logits: Array
    state: tuple[LayerState, ...]


def recompute(model: Model, tokens: Sequence[int], places: Array | None = None) -> Sequential:
    """Everything about at least one token, from nothing. places: [T, 3], those of text if None"""
    layer_functions: Mapping[LayerKind, LayerFunction] = {
        LayerKind.MAMBA2: _mamba2,
        LayerKind.GATED_DELTA: _gated_delta,
        LayerKind.ATTENTION: partial(attention, places=places),
    }
    h = model.ends["embed"][np.asarray(tokens)]
    states: list[LayerState] = []
    for layer in model.layers:
        x = normed(model, h, layer.weights.get("norm"))
        f, state = layer_functions[layer.kind](model, layer.weights, x)
        h = h + f
        h = h + mlp(model, layer.weights, h)
        states.append(state)
    return Sequential(h, head(model, h), tuple(states))


def _convolve(model: Model, weights: Mapping[str, Array], raw: Array) -> tuple[Array, Array]:
    """All outputs [T, C] of the causal convolution of raw [T, C], and the last W - 1 inputs."""
    width = weights["conv"].shape[1]
    padded = np.concatenate([np.zeros((width - 1, raw.shape[1]), dtype=raw.dtype), raw])
    windows = np.lib.stride_tricks.sliding_window_view(padded, width, axis=0)
    convolved = np.einsum("tcw,cw->tc", windows, weights["conv"])
    if "conv_bias" in weights:
        convolved = convolved + weights["conv_bias"]
    return model.numerics.act(convolved), padded[len(padded) - (width - 1) :].T


def _unrolled(transitions: Array, updates: Array) -> Array:
    """All S_t = S_{t-1} M_t + U_t from S = 0, as S_t = sum over j of U_j M_{j+1} ... M_t.

    transitions M [T, H, N, N], updates U [T, H, P, N] -> [T, H, P, N].
    """
    states = np.zeros_like(updates)
    identity = np.broadcast_to(
        np.eye(transitions.shape[-1], dtype=transitions.dtype), transitions.shape[1:]
    )
    for t in range(len(updates)):
        product = identity
        for j in range(t, -1, -1):
            states[t] += updates[j] @ product
            product = transitions[j] @ product
    return states


def _mamba2(model: Model, weights: Mapping[str, Array], x: Array) -> tuple[Array, Recurrent]:
    spec, numerics = model.spec, model.numerics
    n, groups, hp = spec.state_size, spec.groups, spec.heads * spec.head_size
    ends = [hp, 2 * hp + 2 * groups * n]
    z, xbc, dt = np.split(projected(weights, "in", x), ends, axis=1)
    convolved, conv = _convolve(model, weights, xbc)
    value, b, c = np.split(convolved, [hp, hp + groups * n], axis=1)
    value = value.reshape(len(x), spec.heads, spec.head_size)
    b = each_head(model, b.reshape(len(x), groups, n), 1)
    c = each_head(model, c.reshape(len(x), groups, n), 1)
    decay, scale = numerics.mamba2_rates(dt, weights["dt_bias"], weights["a_log"])
    updates = np.einsum("th,thp,thn->thpn", scale, value, b)
    states = _unrolled(decay[:, :, None, None] * np.eye(n, dtype=decay.dtype), updates)
    y = np.einsum("thpn,thn->thp", states, c) + weights["skip"][:, None] * value
    f = projected(weights, "out", gated(model, weights, y.reshape(len(x), hp), z))
    return f, Recurrent(conv, states[-1])


def _gated_delta(model: Model, weights: Mapping[str, Array], x: Array) -> tuple[Array, Recurrent]:
    spec, numerics = model.spec, model.numerics
    heads, keys, hp = spec.heads, spec.key_head_count, spec.heads * spec.head_size
    kn = keys * spec.state_size
    u = projected(weights, "in", x)
    qkv, z = u[:, : 2 * kn + hp], u[:, 2 * kn + hp : 2 * kn + 2 * hp]
    b, g = u[:, -2 * heads : -heads], u[:, -heads:]
    convolved, conv = _convolve(model, weights, qkv)
    q, k = numerics.directions(
        convolved[:, :kn].reshape(len(x), keys, -1),
        convolved[:, kn : 2 * kn].reshape(len(x), keys, -1),
    )
    q, k = each_head(model, q, 1), each_head(model, k, 1)
    v = convolved[:, 2 * kn :].reshape(len(x), heads, -1)
    decay, beta = numerics.gated_delta_rates(b, g, weights["dt_bias"], weights["a_log"])
    erased = np.einsum("th,thm,thn->thmn", beta, k, k)
    transitions = decay[:, :, None, None] * (np.eye(spec.state_size, dtype=k.dtype) - erased)
    states = _unrolled(transitions, np.einsum("th,thp,thn->thpn", beta, v, k))
    o = numerics.head_norm(np.einsum("thpn,thn->thp", states, q))
    if "head_norm" in weights:
        o = o * weights["head_norm"]
    f = projected(weights, "out", numerics.gate(o.reshape(len(x), hp), z))
    return f, Recurrent(conv, states[-1])


def attention(
    model: Model, weights: Mapping[str, Array], x: Array, places: Array | None = None
) -> tuple[Array, Cache]:
    """Causal attention over all tokens at once: outputs [T, D] and the cache behind them.

    places: [T, 3], those of text if None
    """
    numerics, length = model.numerics, len(x)
    q, k, v, gate = split_attention(model, weights, x)
    positions = np.arange(length)
    if places is None:
        places = np.repeat(positions[:, None], 3, axis=1)
    turned_by = pair_positions(model.spec, places)
    q, k = numerics.rot(q, turned_by), numerics.rot(k, turned_by)
    keys, values = each_head(model, k, 1), each_head(model, v, 1)
    o = np.stack([numerics.attend(q[t], keys[: t + 1], values[: t + 1]) for t in positions])
    f = projected(weights, "out", gate_output(model, o, gate).reshape(length, -1))
    return f, Cache(np.concatenate([k.reshape(length, -1), v.reshape(length, -1)], axis=1))
