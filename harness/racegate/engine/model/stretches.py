"""Stretches: what of a forward pass is captured together, and what is launched
(docs/mechanism.md#graphs).
"""

from __future__ import annotations

from itertools import groupby
from typing import NamedTuple

from racegate.scenario.settings import GraphMode, LayerKind

# A place in the forward pass: the index of a layer, or this.
EMBEDDING = -1

Stretch = tuple[int, ...]


class ModelPiece(NamedTuple):
    """graph: the name under which it is captured; None, it is launched."""

    stretch: Stretch
    graph: str | None


def whole(layers: tuple[LayerKind, ...]) -> Stretch:
    """The forward pass from end to end."""
    return (EMBEDDING, *range(len(layers)))


def pieces_of(layers: tuple[LayerKind, ...], mode: GraphMode) -> tuple[ModelPiece, ...]:
    """What a step that fits a graph consists of, in order."""
    if mode is not GraphMode.PIECEWISE:
        return (ModelPiece(whole(layers), "decode"),)

    def is_attention(stage: int) -> bool:
        return stage != EMBEDDING and layers[stage] is LayerKind.ATTENTION

    return tuple(
        ModelPiece(stretch, None if attends else f"piece.{stretch[0] + 1}")
        for attends, group in groupby(whole(layers), is_attention)
        for stretch in (tuple(group),)
    )
