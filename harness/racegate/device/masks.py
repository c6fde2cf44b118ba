"""Sets of rows as bit masks: what accesses are recorded and compared by."""

from __future__ import annotations

from collections.abc import Iterable

_PREFIX = [(1 << rows) - 1 for rows in range(4097)]


def prefix_mask(rows: int) -> int:
    """The first `rows` rows."""
    return _PREFIX[rows] if rows < len(_PREFIX) else (1 << rows) - 1


def mask_of(rows: Iterable[int]) -> int:
    """The given rows; negative ones name none."""
    mask = 0
    for row in rows:
        if row >= 0:
            mask |= 1 << row
    return mask
