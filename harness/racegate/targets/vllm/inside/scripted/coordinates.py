"""Positions in three dimensions, as M-RoPE has them: frames, rows and columns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from racegate.scenario.spec import Image

Coordinates = tuple[int, int, int]


def coordinates(images: Sequence[Image], count: int) -> list[Coordinates]:
    """Of the first tokens of a request. A token of text stands behind all that came before it, in
    every dimension; those of an image stand in a grid there.
    """
    grids = {image.start: image.grid for image in images}
    places: list[Coordinates] = []
    corner = 0
    while len(places) < count:
        grid = grids.get(len(places), (1, 1, 1))
        steps = product(*map(range, grid))
        places += [(corner + frame, corner + row, corner + column) for frame, row, column in steps]
        corner += max(grid)
    return places[:count]


def shift_of(images: Sequence[Image]) -> int:
    """What the coordinates of text behind all images are less than its place."""
    return sum(image.tokens - max(image.grid) for image in images)
