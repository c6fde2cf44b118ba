"""What each rank of a spread model has to observe (DEFINITION section 7): its part of the states
and caches that one rank would have, and all else as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import msgspec
import numpy as np

from racegate.history.observe import Observation
from racegate.scenario.settings import LayerKind, ModelSpec
from racegate_reference.numbers import Array


def by_rank(
    observations: Sequence[Observation], spec: ModelSpec, *, ranks: int
) -> tuple[Observation, ...]:
    """Each observation once for every rank, in the order of ranks."""
    if ranks == 1:
        return tuple(observations)
    return tuple(
        _of_rank(seen, spec, rank, ranks) for seen in observations for rank in range(ranks)
    )


def _of_rank(seen: Observation, spec: ModelSpec, rank: int, ranks: int) -> Observation:
    values = {name: _part(name, value, spec, rank, ranks) for name, value in seen.values.items()}
    return msgspec.structs.replace(seen, values=values, rank=rank)


def _part(name: str, value: Array, spec: ModelSpec, rank: int, ranks: int) -> Array:
    """A rank's part of what is observed under a name."""
    field, _, layer = name.partition(".")
    kept = _Kept(rank, ranks)
    if field in ("state", "checkpoint"):
        return value[..., kept.of((spec.heads, 1)), :, :]
    if field == "conv":
        return value[..., _channels(kept, spec, spec.layers[int(layer)]), :]
    if field in ("kv", "loaded_kv"):
        entry = (spec.kv_head_count, spec.head_size)
        return value[..., kept.of(entry, entry)]
    return value


def _channels(kept: _Kept, spec: ModelSpec, kind: LayerKind) -> Array:
    inner = (spec.heads, spec.head_size)
    if kind is LayerKind.MAMBA2:
        group = (spec.groups, spec.state_size)
        return kept.of(inner, group, group)
    key = (spec.key_head_count, spec.state_size)
    return kept.of(key, key, inner)


class _Kept(msgspec.Struct, frozen=True):
    """Which elements a rank keeps: its share of every part, all of a part that is not divided."""

    rank: int
    ranks: int

    def of(self, *parts: tuple[int, int]) -> Array:
        """Indices, [n]. parts: the units of each, and the elements of one."""
        indices: list[range] = []
        first = 0
        for units, size in parts:
            whole = range(first, first + units * size)
            length = len(whole) // self.ranks
            mine = whole[self.rank * length : (self.rank + 1) * length]
            indices.append(whole if units == 1 else mine)
            first += len(whole)
        return np.fromiter(chain.from_iterable(indices), np.int64)
