"""Places: where a token stands in time, height and width (DEFINITION section 2)."""

from __future__ import annotations

import numpy as np

from racegate.scenario.spec import Request
from racegate_reference.numbers import Array


def place_of(request: Request, position: int) -> Array:
    """[3]: the coordinates of a position, which in text are all the same."""
    behind = 0  # by how much text's coordinates are ahead of its position
    for image in request.images:
        if position < image.start:
            break
        corner = image.start + behind
        if position < image.start + image.tokens:
            return np.array(np.unravel_index(position - image.start, image.grid)) + corner
        behind += max(image.grid) - image.tokens
    return np.full(3, position + behind)
