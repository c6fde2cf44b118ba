"""The model's parameters, drawn from its seed (DEFINITION sections 1 and 2)."""

from __future__ import annotations

import math
from collections.abc import Mapping

from racegate.scenario.settings import LayerKind, ModelPart, ModelSpec, StateLife
from racegate_reference.numbers import Array, Numerics, bits

Shapes = Mapping[str, tuple[tuple[int, ...], int]]

# Added to time steps of states that last.
LONG_LIFE = -6.0
BIAS_FAN_IN = 12


def layer_shapes(spec: ModelSpec, kind: LayerKind) -> Shapes:
    """Parameter name -> (shape, fan_in) of one layer."""
    weights = _attention_shapes(spec) if kind is LayerKind.ATTENTION else _recurrent(spec, kind)
    shapes = dict(weights)
    if ModelPart.BIASES in spec.parts:
        for name, (shape, _) in weights.items():
            kernel, _, kind_of = name.partition("_")
            if kind_of == "proj" or kernel == "conv":
                shapes[f"{kernel}_bias"] = ((shape[0],), BIAS_FAN_IN)
    shapes |= _norms(spec, kind)
    return shapes


def _attention_shapes(spec: ModelSpec) -> Shapes:
    d, hp = spec.hidden_size, spec.heads * spec.head_size
    projected = hp + 2 * spec.kv_head_count * spec.head_size
    if ModelPart.OUTPUT_GATE in spec.parts:
        projected += hp
    return {"qkv_proj": ((projected, d), d), "out_proj": ((d, hp), hp)}


def _recurrent(spec: ModelSpec, kind: LayerKind) -> Shapes:
    d, h, n, w = spec.hidden_size, spec.heads, spec.state_size, spec.conv_width
    hp, kn, gn = h * spec.head_size, spec.key_head_count * n, spec.groups * n
    per_head: Shapes = {"dt_bias": ((h,), 3), "a_log": ((h,), 3)}
    if kind is LayerKind.MAMBA2:
        return {
            "in_proj": ((2 * hp + 2 * gn + h, d), d),
            "conv": ((hp + 2 * gn, w), w),
            **per_head,
            "skip": ((h,), 3),
            "out_proj": ((d, hp), hp),
        }
    return {
        "in_proj": ((2 * kn + 2 * hp + 2 * h, d), d),
        "conv": ((2 * kn + hp, w), w),
        **per_head,
        "out_proj": ((d, hp), hp),
    }


def _norms(spec: ModelSpec, kind: LayerKind) -> Shapes:
    """The weights of a layer's norms: `draw_parameters` knows them by their names."""
    d, p = spec.hidden_size, spec.head_size
    shapes: dict[str, tuple[tuple[int, ...], int]] = {}
    if ModelPart.NORM_WEIGHTS in spec.parts:
        shapes["norm"] = ((d,), BIAS_FAN_IN)
        if kind is LayerKind.GATED_DELTA:
            shapes["head_norm"] = ((p,), BIAS_FAN_IN)
    if ModelPart.GATED_NORM in spec.parts and kind is LayerKind.MAMBA2:
        shapes["gated_norm"] = ((spec.heads * p,), BIAS_FAN_IN)
    if ModelPart.QK_NORM in spec.parts and kind is LayerKind.ATTENTION:
        shapes |= {"q_norm": ((p,), BIAS_FAN_IN), "k_norm": ((p,), BIAS_FAN_IN)}
    return shapes


def mlp_shapes(spec: ModelSpec) -> Shapes:
    """Parameter name -> (shape, fan_in) of the MLP behind a layer, if there is one."""
    d, m = spec.hidden_size, spec.mlp_size
    if not m:
        return {}
    shapes: dict[str, tuple[tuple[int, ...], int]] = {
        "mlp_in": ((2 * m, d), d),
        "mlp_out": ((d, m), m),
    }
    if ModelPart.NORM_WEIGHTS in spec.parts:
        shapes["mlp_norm"] = ((d,), BIAS_FAN_IN)
    return shapes


def embedding_shapes(spec: ModelSpec) -> Shapes:
    """Parameter name -> (shape, fan_in) of what stands before and behind the layers."""
    v, d = spec.vocab_size, spec.hidden_size
    shapes: Shapes = {"embed": ((v, d), 1), "lm_head": ((v, d), d)}
    if ModelPart.NORM_WEIGHTS in spec.parts:
        shapes = {**shapes, "final_norm": ((d,), BIAS_FAN_IN)}
    return shapes


def draft_shapes(spec: ModelSpec) -> Shapes:
    """Parameter name -> (shape, fan_in) of the mtp drafter, whose layer has no MLP."""
    d = spec.hidden_size
    shapes = {"fc": ((d, 2 * d), 2 * d), **layer_shapes(spec, LayerKind.ATTENTION)}
    if ModelPart.NORM_WEIGHTS in spec.parts:
        shapes |= {"token_norm": ((d,), BIAS_FAN_IN), "hidden_norm": ((d,), BIAS_FAN_IN)}
    return shapes


def draw_parameters(
    shapes: Shapes, *, spec: ModelSpec, prefix: str, numerics: Numerics
) -> Mapping[str, Array]:
    """The values of all names in `shapes`; `prefix` goes before each name in the hash."""

    def drawn(name: str, count: int, fan_in: int) -> Array:
        words = bits(spec.seed, prefix + name, count)
        if name.endswith("norm"):
            return numerics.norm_weight(words, fan_in)
        value = numerics.parameter(words, fan_in)
        if name == "dt_bias" and spec.state_life is StateLife.LONG:
            return numerics.slowed(value, LONG_LIFE)
        return value

    return {
        name: drawn(name, math.prod(shape), fan_in).reshape(shape)
        for name, (shape, fan_in) in shapes.items()
    }
