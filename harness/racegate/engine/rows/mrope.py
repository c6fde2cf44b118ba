"""Three-dimensional positions of a step's tokens as the host counts them (M-RoPE): optimistic, like
its computed counts, and corrected on the device (docs/mechanism.md#correction).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from racegate.engine.state.view import StepView
from racegate.scenario.spec import Image


def mrope_host(
    view: StepView,
    computed: np.ndarray,  # [R] int32, the host's counts
    images: Mapping[str, Sequence[Image]],
) -> np.ndarray:
    """[T, 3] int32. images: by request"""
    return np.concatenate(
        [
            coordinates(images[name], int(first), int(count))
            for name, first, count in zip(view.rows, computed, view.tokens, strict=True)
        ]
    )


def coordinates(images: Sequence[Image], first: int, count: int) -> np.ndarray:
    """[count, 3] int32: time, height and width of a request's positions from the first on.

    A token of text is one behind the largest coordinate before it, in all three. An image begins
    there, and its tokens count frames, rows and columns from it.
    """
    places = np.arange(first, first + count, dtype=np.int32)[:, None].repeat(3, axis=1)
    lead = 0  # of coordinates, over positions
    for image in images:
        end, corner = image.start + image.tokens, image.start + lead
        inside = slice(max(image.start - first, 0), max(end - first, 0))
        skipped = max(first - image.start, 0)
        grid = np.indices(image.grid, np.int32).reshape(3, -1).T + corner
        places[inside] = grid[skipped : skipped + len(places[inside])]
        grown = max(image.grid) - image.tokens
        places[inside.stop :] += grown
        lead += grown
    return places
