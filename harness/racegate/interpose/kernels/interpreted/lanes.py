"""The lanes of one program: nothing orders them but barriers, and what compiled code does on its
way.

Triton gives each element of a tensor to a thread. Two accesses of one element's bytes by threads of
different warps are in no order, unless the kernel calls `tl.debug_barrier` between them. What
thread has which element is the compiler's choice; a race is told only where every choice that it
has for a tensor of this size parts the two. Operations that go through shared memory when compiled
(reductions, products, scans) bring a barrier, or not: what stands across one is counted only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from racegate.interpose.kernels.interpreted.accesses import LaunchRace, MissingEdge, ProgramAccess
from racegate.interpose.kernels.interpreted.handing import WARP

_VECTOR_BYTES = 16  # what one instruction of a thread moves at most
_PAIRS_MAX = 20_000  # of accesses, that are looked at in one launch


class LaneRaces(NamedTuple):
    """races: for each two lines one; untold: pairs of lines that may race, by how they are compiled

    skipped: pairs of accesses that were not looked at, because there were too many
    """

    races: list[LaunchRace]
    untold: int
    skipped: int


def judge_lanes(touches: Sequence[ProgramAccess], warps: int) -> LaneRaces:
    """touches: of the launch; warps: of each program"""
    found: dict[object, LaunchRace] = {}
    untold: set[object] = set()
    skipped = looked = 0
    for touch in touches:
        if (race := _of_one_store(touch)) is not None:
            found.setdefault((touch.place, touch.place), race)
    for first, second in _meeting(touches) if warps > 1 else ():
        key = (first.place, first.is_write, second.place, second.is_write)
        if key in found or first.barriers != second.barriers:
            continue
        if looked >= _PAIRS_MAX:
            skipped += 1
            continue
        looked += 1
        race, may_race = _between(first, second, warps)
        if race is not None and first.syncs == second.syncs:
            found[key] = race
        elif race is not None or may_race:
            untold.add(key)
    return LaneRaces(list(found.values()), len(untold - found.keys()), skipped)


def _of_one_store(touch: ProgramAccess) -> LaunchRace | None:
    """Two lanes of one store that write different values to one element."""
    if touch.values is None or touch.addresses.size < 2:
        return None
    if (touch.addresses[1:] > touch.addresses[:-1]).all():
        return None
    order = np.argsort(touch.addresses, kind="stable")
    addresses = touch.addresses[order]
    values = touch.values[order].view(f"u{touch.values.itemsize}")
    twice = (addresses[1:] == addresses[:-1]) & (values[1:] != values[:-1])
    if not twice.any():
        return None
    low = int(addresses[1:][twice][0])
    return LaunchRace(touch, touch, low, low + touch.size, MissingEdge.ONE_LANE)


def _meeting(touches: Sequence[ProgramAccess]) -> Iterator[tuple[ProgramAccess, ProgramAccess]]:
    """Pairs of plain accesses of one program, one of them writing, whose bytes may meet and that
    are not the same elements in the same lanes.
    """
    by_program: dict[int, list[ProgramAccess]] = defaultdict(list)
    for touch in touches:
        if touch.addresses.size and not touch.is_atomic:
            by_program[touch.program].append(touch)
    for mine in by_program.values():
        if any(touch.is_write for touch in mine):
            yield from _meeting_in(mine)


def _meeting_in(mine: list[ProgramAccess]) -> Iterator[tuple[ProgramAccess, ProgramAccess]]:
    lows = np.array([int(touch.addresses.min()) for touch in mine])
    highs = np.array([int(touch.addresses.max()) + touch.size for touch in mine])
    order = np.argsort(lows, kind="stable")
    open_until = np.maximum.accumulate(highs[order])
    is_met = np.zeros(len(mine), bool)
    is_met[order[1:]] = lows[order[1:]] < open_until[:-1]
    if not is_met.any():
        return
    # Whoever begins below the end of one before it, and those that reach over it.
    for a, b in combinations(range(len(mine)), 2):
        if (is_met[a] or is_met[b]) and lows[a] < highs[b] and lows[b] < highs[a]:
            first, second = mine[a], mine[b]
            if (first.is_write or second.is_write) and not _is_same_in_lanes(first, second):
                yield first, second


def _is_same_in_lanes(first: ProgramAccess, second: ProgramAccess) -> bool:
    return (
        first.shape == second.shape
        and first.size == second.size
        and first.lanes is None
        and second.lanes is None
        and np.array_equal(first.addresses, second.addresses)
    )


def _between(
    first: ProgramAccess, second: ProgramAccess, warps: int
) -> tuple[LaunchRace | None, bool]:
    """A race of two accesses of one program, and otherwise whether there may be one."""
    ours, theirs, bytes_at = _common(first, second)
    if first.shape == second.shape:
        apart = ours != theirs
        ours, theirs, bytes_at = ours[apart], theirs[apart], bytes_at[apart]
    if not ours.size:
        return None, False
    parted = [
        one != other
        for one in _warps_of(first, ours, warps)
        for other in _warps_of(second, theirs, warps)
    ]
    sure = np.logical_and.reduce(parted)
    if sure.any():
        low = int(bytes_at[sure][0])
        return LaunchRace(first, second, low, low + 1, MissingEdge.BARRIER), False
    # One that is given to every warp, in whole or because it is small, may be used by any.
    is_shared = min(first.elements, second.elements) < WARP * warps
    return None, is_shared or bool(np.logical_or.reduce(parted).any())


def _common(
    first: ProgramAccess, second: ProgramAccess
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Elements of the two that share a byte: the place of each in its tensor, and the byte."""
    unit = int(np.gcd(first.size, second.size))
    ours, one = _cells(first, unit)
    theirs, other = _cells(second, unit)
    left, right = _matched(ours, theirs)
    back, forth = _matched(theirs, ours)
    left, right = np.concatenate((left, forth)), np.concatenate((right, back))
    return one[left], other[right], ours[left]


def _matched(
    ours: NDArray[np.int64], theirs: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Of each of ours that is among theirs its index and one of theirs."""
    order = np.argsort(theirs, kind="stable")
    at = np.searchsorted(theirs[order], ours)
    at[at == theirs.size] = 0
    hits = theirs[order][at] == ours
    return np.flatnonzero(hits), order[at[hits]]


def _cells(touch: ProgramAccess, unit: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The address of each part of so many bytes, and the place of its element in the tensor."""
    lanes = np.arange(touch.addresses.size) if touch.lanes is None else touch.lanes
    parts = touch.size // unit
    cells = touch.addresses.astype(np.int64)[:, None] + unit * np.arange(parts)
    return cells.ravel(), np.repeat(lanes, parts)


def _warps_of(
    touch: ProgramAccess, lanes: NDArray[np.int64], warps: int
) -> Iterator[NDArray[np.int64]]:
    """The warp of each element, for each layout that the compiler may choose."""
    count = max(touch.elements, 1)
    most = max(1, min(_VECTOR_BYTES // touch.size, count // (WARP * warps)))
    orders = [lanes]
    if not _is_by_rows(touch):
        where = np.unravel_index(lanes, touch.shape)
        orders.append(np.ravel_multi_index(where[::-1], touch.shape[::-1]))
    for places in orders:
        each = 1
        while each <= most:
            yield places // (WARP * each) % warps
            each *= 2


def _is_by_rows(touch: ProgramAccess) -> bool:
    """Whether elements that follow each other in a row do so in memory: the compiler gives threads
    elements in that order.
    """
    if len(touch.shape) < 2:
        return True
    lanes = np.arange(touch.addresses.size) if touch.lanes is None else touch.lanes
    follow = (np.diff(lanes) == 1) & (lanes[1:] % touch.shape[-1] != 0)
    steps = np.diff(touch.addresses.astype(np.int64))[follow]
    return bool(steps.size and (steps == touch.size).all())
