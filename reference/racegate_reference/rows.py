"""Row policy: where the requests of a step stand in the persistent batch (DEFINITION section 6).

Pure functions on tuples of request names; row i is place i.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import IntEnum

Rows = tuple[str, ...]


class Region(IntEnum):
    """Parts of the batch, in the order in which they are laid out."""

    DECODE = 0
    SHORT_EXTEND = 1
    LONG_EXTEND = 2
    PREFILL = 3


def region_of(*, computed: int, prefill_len: int, tokens: int, draft_len_max: int) -> Region:
    """The region of a row with the counters before the step's advance and its tokens."""
    if computed >= prefill_len:
        return Region.DECODE
    if computed == 0:
        return Region.PREFILL
    return Region.SHORT_EXTEND if tokens <= 1 + draft_len_max else Region.LONG_EXTEND


def next_rows(rows: Rows, planned: Mapping[str, Region], lost: Collection[str]) -> Rows:
    """The rows of the next step: its requests, in the order of its plan, and their regions.

    lost: requests preempted since the last step; they do not keep their row even if planned.
    """
    slots = [name if name in planned and name not in lost else None for name in rows]
    for name in planned:
        if name in slots:
            continue
        if None in slots:
            slots[slots.index(None)] = name
        else:
            slots.append(name)
    return reorder(condense(slots), planned)


def fresh_rows(rows: Rows, planned: Mapping[str, Region], lost: Collection[str]) -> Rows:
    """The rows of a step in slots: by region, then in the order of its plan. Nothing is kept."""
    return tuple(sorted(planned, key=lambda name: planned[name]))


def condense(slots: Sequence[str | None]) -> Rows:
    """Moves the last row into the lowest hole until no hole lies below a row."""
    dense = list(slots)
    while None in dense:
        last = dense.pop()
        if last is not None:
            dense[dense.index(None)] = last
    return tuple(name for name in dense if name is not None)


def reorder(rows: Rows, regions: Mapping[str, Region]) -> Rows:
    """Sorts the rows by region with the fewest moves: only misplaced rows move."""
    place_regions = sorted(regions[name] for name in rows)
    ordered = list(rows)
    for region in Region:
        misplaced = [
            n for n, r in zip(rows, place_regions, strict=True) if regions[n] == region != r
        ]
        places = [
            place
            for place, (name, r) in enumerate(zip(rows, place_regions, strict=True))
            if r == region != regions[name]
        ]
        for place, name in zip(places, misplaced, strict=True):
            ordered[place] = name
    return tuple(ordered)


def rotate(rows: Rows, names: Sequence[str], regions: Mapping[str, Region]) -> Rows | None:
    """Each name takes the row of the next one; None unless all have rows in one region."""
    if not set(names) <= set(rows) or len({regions[name] for name in names}) != 1:
        return None
    rotated = list(rows)
    for name, following in zip(names, (*names[1:], names[0]), strict=True):
        rotated[rows.index(following)] = name
    return tuple(rotated)
