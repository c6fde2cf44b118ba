"""The model's parameters, drawn from its seed (DEFINITION sections 1 and 2)."""

from __future__ import annotations

import math
from collections.abc import Mapping

from racegate.scenario.spec import LayerKind, ModelSpec
from racegate_reference.numbers import Array, Numerics, bits

Shapes = Mapping[str, tuple[tuple[int, ...], int]]


def layer_shapes(spec: ModelSpec, kind: LayerKind) -> Shapes:
    """Parameter name -> (shape, fan_in) of one layer."""
    d, h, n = spec.hidden_size, spec.heads, spec.state_size
    hp, hn, w = h * spec.head_size, h * spec.state_size, spec.conv_width
    if kind is LayerKind.ATTENTION:
        return {"qkv_proj": ((3 * hp, d), d), "out_proj": ((d, hp), hp)}
    per_head: Shapes = {"dt_bias": ((h,), 3), "a_log": ((h,), 3)}
    if kind is LayerKind.MAMBA2:
        return {
            "in_proj": ((2 * hp + 2 * n + h, d), d),
            "conv": ((hp + 2 * n, w), w),
            **per_head,
            "skip": ((h,), 3),
            "out_proj": ((d, hp), hp),
        }
    return {
        "in_proj": ((2 * hn + 2 * hp + 2 * h, d), d),
        "conv": ((2 * hn + hp, w), w),
        **per_head,
        "out_proj": ((d, hp), hp),
    }


def embedding_shapes(spec: ModelSpec) -> Shapes:
    """Parameter name -> (shape, fan_in) of the first and the last layer."""
    v, d = spec.vocab_size, spec.hidden_size
    return {"embed": ((v, d), 1), "lm_head": ((v, d), d)}


def draft_shapes(spec: ModelSpec) -> Shapes:
    """Parameter name -> (shape, fan_in) of the mtp drafter."""
    d = spec.hidden_size
    return {"fc": ((d, 2 * d), 2 * d), **layer_shapes(spec, LayerKind.ATTENTION)}


def draw_parameters(
    shapes: Shapes, *, seed: int, prefix: str, numerics: Numerics
) -> Mapping[str, Array]:
    """The values of all names in `shapes`; `prefix` goes before each name in the hash."""
    return {
        name: numerics.parameter(bits(seed, prefix + name, math.prod(shape)), fan_in).reshape(shape)
        for name, (shape, fan_in) in shapes.items()
    }
