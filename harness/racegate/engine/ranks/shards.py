"""What each rank has of a model: whole heads, groups of heads, and columns of the MLP.

What there is once for all heads (a single key head, or group) every rank has. A projection that
makes heads is cut by rows, one that takes them by columns, so that the ranks' results add up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from racegate.scenario.settings import LayerKind, ModelPart, ModelSpec

# Units, and elements of a unit: what a dimension consists of, in order.
Sections = Sequence[tuple[int, int]]


def share(units: int, ranks: int) -> int:
    """How many units each rank has; one that there is once is everybody's."""
    return 1 if units == 1 else units // ranks


def shard_of(spec: ModelSpec, ranks: int) -> ModelSpec:
    """The heads that each rank has of a model; the size of its MLP its parameters tell."""
    return msgspec.structs.replace(
        spec,
        heads=spec.heads // ranks,
        kv_heads=share(spec.kv_head_count, ranks),
        key_heads=share(spec.key_head_count, ranks),
        groups=share(spec.groups, ranks),
    )


def places(sections: Sections, rank: int, ranks: int) -> np.ndarray:
    """[n] int64: the elements of a dimension that a rank has."""
    kept, start = [], 0
    for units, size in sections:
        count = share(units, ranks)
        first = start + (rank * count % units) * size
        kept.append(np.arange(first, first + count * size))
        start += units * size
    return np.concatenate(kept)


def shard_weights(
    spec: ModelSpec, weights: Mapping[str, np.ndarray], *, rank: int, ranks: int
) -> dict[str, np.ndarray]:
    """A rank's part of the layers' parameters, and all others as they are. weights: by name"""
    shards = dict(weights)
    for index, kind in enumerate(spec.layers):
        rows = _rows(spec, kind)
        for name in [name for name in weights if name.startswith(f"layer.{index}.")]:
            short = name.rpartition(".")[2]
            value = weights[name]
            if short in rows:
                shards[name] = value[places(rows[short], rank, ranks)]
            elif short in ("out_proj", "mlp_out"):
                units = spec.heads if short == "out_proj" else spec.mlp_size
                columns = places([(units, value.shape[1] // units)], rank, ranks)
                shards[name] = np.ascontiguousarray(value[:, columns])
            elif short == "out_bias" and rank:
                del shards[name]  # the sum has it once
    return shards


def _rows(spec: ModelSpec, kind: LayerKind) -> dict[str, Sections]:
    """What the rows of a layer's parameters consist of, where they are cut."""
    heads, size, state = spec.heads, spec.head_size, spec.state_size
    inner = (heads, size)
    mlp = [(spec.mlp_size, 1), (spec.mlp_size, 1)]
    if kind is LayerKind.ATTENTION:
        keys = (spec.kv_head_count, size)
        gate = [inner] if ModelPart.OUTPUT_GATE in spec.parts else []
        made: Sections = [inner, keys, keys, *gate]
        return {"qkv_proj": made, "qkv_bias": made, "mlp_in": mlp}
    scalars: Sections = [(heads, 1)]
    if kind is LayerKind.MAMBA2:
        group = (spec.groups, state)
        channels: Sections = [inner, group, group]
        made = [inner, *channels, *scalars]
    else:
        key = (spec.key_head_count, state)
        channels = [key, key, inner]
        made = [*channels, inner, *scalars, *scalars]
    return {
        "in_proj": made,
        "in_bias": made,
        "conv": channels,
        "conv_bias": channels,
        "dt_bias": scalars,
        "a_log": scalars,
        "skip": scalars,
        "gated_norm": [inner],
        "mlp_in": mlp,
    }
