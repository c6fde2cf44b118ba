"""The engine's parameters, drawn from the model seed. DEFINITION sections 1 and 2."""

from __future__ import annotations

import numpy as np

from racegate.engine.state.sizes import quantity_of
from racegate.scenario.spec import LayerKind, ModelSpec, Numerics
from racegate_kernels.numerics import GOLDEN, mix_eager


def parameter_shapes(model: ModelSpec, *, has_mtp: bool) -> dict[str, tuple[tuple[int, ...], int]]:
    """Parameter name -> (shape, fan_in)."""
    d, h, p, n = model.hidden_size, model.heads, model.head_size, model.state_size
    vocab, width = model.vocab_size, model.conv_width
    shapes: dict[str, tuple[tuple[int, ...], int]] = {
        "embed": ((vocab, d), 1),
        "lm_head": ((vocab, d), d),
    }
    for index, kind in enumerate(model.layers):
        match kind:
            case LayerKind.MAMBA2:
                channels = h * p + 2 * n
                layer = {
                    "in_proj": ((channels + h * p + h, d), d),
                    "conv": ((channels, width), width),
                    "dt_bias": ((h,), 3),
                    "a_log": ((h,), 3),
                    "skip": ((h,), 3),
                    "out_proj": ((d, h * p), h * p),
                }
            case LayerKind.GATED_DELTA:
                channels = 2 * h * n + h * p
                layer = {
                    "in_proj": ((channels + h * p + 2 * h, d), d),
                    "conv": ((channels, width), width),
                    "dt_bias": ((h,), 3),
                    "a_log": ((h,), 3),
                    "out_proj": ((d, h * p), h * p),
                }
            case LayerKind.ATTENTION:
                layer = {
                    "qkv_proj": ((3 * h * p, d), d),
                    "out_proj": ((d, h * p), h * p),
                }
        shapes |= {f"layer.{index}.{name}": value for name, value in layer.items()}
    if has_mtp:
        shapes |= {
            "draft.fc": ((d, 2 * d), 2 * d),
            "draft.qkv_proj": ((3 * h * p, d), d),
            "draft.out_proj": ((d, h * p), h * p),
        }
    return shapes


def make_weights(model: ModelSpec, *, has_mtp: bool) -> dict[str, np.ndarray]:
    """All parameters, of the dtype that the numerics ask for."""
    shapes = parameter_shapes(model, has_mtp=has_mtp)
    return {name: _parameter(model, name, *value) for name, value in shapes.items()}


def _parameter(model: ModelSpec, name: str, shape: tuple[int, ...], fan_in: int) -> np.ndarray:
    seed = mix_eager(np.array([model.seed], np.uint32)) ^ np.uint32(_fnv(name))
    index = np.arange(int(np.prod(shape)), dtype=np.uint32)
    bits: np.ndarray = mix_eager(mix_eager(seed) + index * GOLDEN).reshape(shape)
    if model.numerics is Numerics.EXACT:
        return bits
    scaled: np.ndarray = (bits / 2.0**31 - 1.0) * np.sqrt(3.0 / fan_in)
    return scaled.astype(quantity_of(model.numerics))


def _fnv(text: str) -> int:
    value = 0x811C9DC5
    for byte in text.encode():
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value
