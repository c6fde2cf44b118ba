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

from racegate.scenario.spec import LayerKind
from racegate_reference.model import Cache, LayerState, Model, Recurrent, pair_positions
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
    h = model.embed[np.asarray(tokens)]
    states: list[LayerState] = []
    for layer in model.layers:
        f, state = layer_functions[layer.kind](model, layer.weights, model.numerics.norm(h))
        h = h + f
        states.append(state)
    return Sequential(h, model.numerics.norm(h) @ model.lm_head.T, tuple(states))


def _convolve(model: Model, weights: Mapping[str, Array], raw: Array) -> tuple[Array, Array]:
    """All outputs [T, C] of the causal convolution of raw [T, C], and the last W - 1 inputs."""
    width = weights["conv"].shape[1]
    padded = np.concatenate([np.zeros((width - 1, raw.shape[1]), dtype=raw.dtype), raw])
    windows = np.lib.stride_tricks.sliding_window_view(padded, width, axis=0)
    return (
        model.numerics.act(np.einsum("tcw,cw->tc", windows, weights["conv"])),
        padded[len(padded) - (width - 1) :].T,
    )


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
    hp, n = spec.heads * spec.head_size, spec.state_size
    z, xbc, dt = np.split(x @ weights["in_proj"].T, [hp, 2 * hp + 2 * n], axis=1)
    convolved, conv = _convolve(model, weights, xbc)
    value, b, c = np.split(convolved, [hp, hp + n], axis=1)
    value = value.reshape(len(x), spec.heads, spec.head_size)
    decay, scale = numerics.mamba2_rates(dt, weights["dt_bias"], weights["a_log"])
    updates = np.einsum("th,thp,tn->thpn", scale, value, b)
    states = _unrolled(decay[:, :, None, None] * np.eye(n, dtype=decay.dtype), updates)
    y = np.einsum("thpn,tn->thp", states, c) + weights["skip"][:, None] * value
    f = numerics.gate(y.reshape(len(x), hp), z) @ weights["out_proj"].T
    return f, Recurrent(conv, states[-1])


def _gated_delta(model: Model, weights: Mapping[str, Array], x: Array) -> tuple[Array, Recurrent]:
    spec, numerics = model.spec, model.numerics
    heads, hp, hn = spec.heads, spec.heads * spec.head_size, spec.heads * spec.state_size
    u = x @ weights["in_proj"].T
    qkv, z = u[:, : 2 * hn + hp], u[:, 2 * hn + hp : 2 * hn + 2 * hp]
    b, g = u[:, -2 * heads : -heads], u[:, -heads:]
    convolved, conv = _convolve(model, weights, qkv)
    q, k = numerics.directions(
        convolved[:, :hn].reshape(len(x), heads, -1),
        convolved[:, hn : 2 * hn].reshape(len(x), heads, -1),
    )
    v = convolved[:, 2 * hn :].reshape(len(x), heads, -1)
    decay, beta = numerics.gated_delta_rates(b, g, weights["dt_bias"], weights["a_log"])
    erased = np.einsum("th,thm,thn->thmn", beta, k, k)
    transitions = decay[:, :, None, None] * (np.eye(spec.state_size, dtype=k.dtype) - erased)
    states = _unrolled(transitions, np.einsum("th,thp,thn->thpn", beta, v, k))
    o = numerics.head_norm(np.einsum("thpn,thn->thp", states, q))
    f = numerics.gate(o.reshape(len(x), hp), z) @ weights["out_proj"].T
    return f, Recurrent(conv, states[-1])


def attention(
    model: Model, weights: Mapping[str, Array], x: Array, places: Array | None = None
) -> tuple[Array, Cache]:
    """Causal attention over all tokens at once: outputs [T, D] and the cache behind them.

    places: [T, 3], those of text if None
    """
    spec, numerics = model.spec, model.numerics
    length = len(x)
    qkv = (x @ weights["qkv_proj"].T).reshape(length, 3, spec.heads, spec.head_size)
    positions = np.arange(length)
    if places is None:
        places = np.repeat(positions[:, None], 3, axis=1)
    turned_by = pair_positions(spec, places)
    q, k = numerics.rot(qkv[:, 0], turned_by), numerics.rot(qkv[:, 1], turned_by)
    v = qkv[:, 2]
    o = np.stack([numerics.attend(q[t], k[: t + 1], v[: t + 1]) for t in positions])
    f = numerics.attended(o).reshape(length, -1) @ weights["out_proj"].T
    return f, Cache(np.concatenate([k.reshape(length, -1), v.reshape(length, -1)], axis=1))
