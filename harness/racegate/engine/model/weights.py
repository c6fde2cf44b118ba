"""The engine's parameters, drawn from the model seed. DEFINITION sections 1 and 2."""

from __future__ import annotations

import numpy as np

from racegate.engine.state.sizes import quantity_of
from racegate.scenario.settings import LayerKind, ModelPart, ModelSpec, Numerics, StateLife
from racegate_kernels.numerics import GOLDEN, mix_eager

Shapes = dict[str, tuple[tuple[int, ...], int]]

PART_FAN_IN = 12
# What lasting states have added to dt_bias.
LONG_LIFE_BIAS = -6.0


def parameter_shapes(model: ModelSpec, *, has_mtp: bool) -> Shapes:
    """Parameter name -> (shape, fan_in)."""
    d, vocab = model.hidden_size, model.vocab_size
    has_weights = ModelPart.NORM_WEIGHTS in model.parts
    shapes: Shapes = {"embed": ((vocab, d), 1), "lm_head": ((vocab, d), d)}
    if has_weights:
        shapes["final_norm"] = ((d,), PART_FAN_IN)
    for index, kind in enumerate(model.layers):
        layer = _layer_shapes(model, kind) | _mlp_shapes(model)
        shapes |= {f"layer.{index}.{name}": value for name, value in layer.items()}
    if has_mtp:
        draft: Shapes = {"fc": ((d, 2 * d), 2 * d)} | _layer_shapes(model, LayerKind.ATTENTION)
        if has_weights:
            draft |= {"token_norm": ((d,), PART_FAN_IN), "hidden_norm": ((d,), PART_FAN_IN)}
        shapes |= {f"draft.{name}": value for name, value in draft.items()}
    return shapes


def _layer_shapes(model: ModelSpec, kind: LayerKind) -> Shapes:
    """Of a layer without its MLP."""
    d, h, p = model.hidden_size, model.heads, model.head_size
    inner, parts = h * p, set(model.parts)
    vectors: dict[str, int] = {}
    match kind:
        case LayerKind.ATTENTION:
            rows = inner + 2 * model.kv_head_count * p
            rows += inner if ModelPart.OUTPUT_GATE in parts else 0
            layer: Shapes = {"qkv_proj": ((rows, d), d)}
            biased = {"qkv_bias": rows}
            if ModelPart.QK_NORM in parts:
                vectors |= {"q_norm": p, "k_norm": p}
        case LayerKind.MAMBA2:
            layer = _recurrent_shapes(model, model.groups, scalars=1)
            layer["skip"] = ((h,), 3)
            if ModelPart.GATED_NORM in parts:
                vectors["gated_norm"] = inner
        case LayerKind.GATED_DELTA:
            layer = _recurrent_shapes(model, model.key_head_count, scalars=2)
            if ModelPart.NORM_WEIGHTS in parts:
                vectors["head_norm"] = p
    if kind is not LayerKind.ATTENTION:
        biased = {"in_bias": layer["in_proj"][0][0], "conv_bias": layer["conv"][0][0]}
    layer["out_proj"] = ((d, inner), inner)
    if ModelPart.BIASES in parts:
        vectors |= biased | {"out_bias": d}
    if ModelPart.NORM_WEIGHTS in parts:
        vectors["norm"] = d
    return layer | {name: ((size,), PART_FAN_IN) for name, size in vectors.items()}


def _recurrent_shapes(model: ModelSpec, shared: int, *, scalars: int) -> Shapes:
    """shared: how many pairs of B and C, or of q and k, there are; scalars: of a head, projected"""
    d, h, inner = model.hidden_size, model.heads, model.heads * model.head_size
    channels = inner + 2 * shared * model.state_size
    return {
        "in_proj": ((channels + inner + scalars * h, d), d),
        "conv": ((channels, model.conv_width), model.conv_width),
        "dt_bias": ((h,), 3),
        "a_log": ((h,), 3),
    }


def _mlp_shapes(model: ModelSpec) -> Shapes:
    d, size = model.hidden_size, model.mlp_size
    if size == 0:
        return {}
    shapes: Shapes = {"mlp_in": ((2 * size, d), d), "mlp_out": ((d, size), size)}
    if ModelPart.NORM_WEIGHTS in model.parts:
        shapes["mlp_norm"] = ((d,), PART_FAN_IN)
    return shapes


def make_weights(model: ModelSpec, *, has_mtp: bool) -> dict[str, np.ndarray]:
    """All parameters, of the dtype that the numerics ask for."""
    shapes = parameter_shapes(model, has_mtp=has_mtp)
    return {name: _parameter(model, name, *value) for name, value in shapes.items()}


def _parameter(model: ModelSpec, name: str, shape: tuple[int, ...], fan_in: int) -> np.ndarray:
    seed = mix_eager(np.array([model.seed], np.uint32)) ^ np.uint32(_fnv(name))
    index = np.arange(int(np.prod(shape)), dtype=np.uint32)
    bits: np.ndarray = mix_eager(mix_eager(seed) + index * GOLDEN).reshape(shape)
    is_norm = name.endswith("norm")
    if model.numerics is Numerics.EXACT:
        return bits | 1 if is_norm else bits
    scaled: np.ndarray = (bits / 2.0**31 - 1.0) * np.sqrt(3.0 / fan_in)
    if is_norm:
        scaled = scaled + 1.0
    if model.state_life is StateLife.LONG and name.endswith(".dt_bias"):
        scaled = scaled + LONG_LIFE_BIAS
    return scaled.astype(quantity_of(model.numerics))


def _fnv(text: str) -> int:
    value = 0x811C9DC5
    for byte in text.encode():
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value
