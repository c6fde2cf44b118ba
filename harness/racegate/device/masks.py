"""Sets of rows as bit masks: what accesses are recorded and compared by."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

_PREFIX = [(1 << rows) - 1 for rows in range(4097)]
_FEW_ROWS = 16  # are taken off a mask one by one: that costs as much as its length, every time


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


def rows_of(mask: int) -> list[int]:
    """The rows in a mask, ascending."""
    if mask.bit_count() > _FEW_ROWS:
        octets = np.frombuffer(mask.to_bytes(mask.bit_length() // 8 + 1, "little"), np.uint8)
        found: list[int] = np.flatnonzero(np.unpackbits(octets, bitorder="little")).tolist()
        return found
    rows = []
    while mask:
        lowest = mask & -mask
        rows.append(lowest.bit_length() - 1)
        mask ^= lowest
    return rows
