"""The programs of one launch: nothing orders them but what atomic operations hand over.

A compiled kernel runs its programs at the same time, in any order; the interpreter runs them one
after the other. Two that touch the same bytes, of which one writes, race. Atomic operations do not
race with each other, and by them a program may hand over to another: what one does before an atomic
operation may come before what another does behind one, so that such a pair is counted, and no race.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from racegate.history.finding import Frame, Race, Side, Stack, hazard_of
from racegate.order.findings import race_signature
from racegate.order.recorder import PlaceLabels

MAY_BE_ORDERED = "programs of a launch that may hand over to each other by atomic operations"
_EDGE = (
    "nothing orders two programs of one launch: give each bytes of its own, make both accesses "
    "atomic, or put what comes second into a launch of its own"
)


class ProgramAccess(NamedTuple):
    """What one program does at one place of a kernel.

    addresses: [N] uint64, of the elements; size: of each, in bytes
    program: its number in the grid; at: of the touch, among all of the launch
    values: [N], what a plain store writes, None of all else; place: the line of the kernel
    """

    addresses: NDArray[np.uint64]
    size: int
    program: int
    at: int
    place: Frame
    is_write: bool = False
    is_atomic: bool = False
    values: NDArray[np.generic] | None = None


class ProgramRace(NamedTuple):
    """Two programs of a launch that touch the same bytes: the first such ones from low to high."""

    first: ProgramAccess
    second: ProgramAccess
    low: int
    high: int


def judge_programs(touches: Sequence[ProgramAccess]) -> tuple[list[ProgramRace], int]:
    """One race for each two places of the kernel, and how many such pairs may be handed over.
    Programs that write one value to an element, which none of them reads, do not race there.
    """
    known = [touch for touch in touches if touch.addresses.size]
    if len({touch.program for touch in known}) < 2 or not _may_meet(known):
        return [], 0
    unit = int(np.gcd.reduce([touch.size for touch in known]))
    if any((touch.addresses % np.uint64(unit)).any() for touch in known):
        unit = 1
    cells, owners = _cells(known, unit)
    order = np.argsort(cells, kind="stable")
    cells, owners = cells[order], owners[order]
    starts = np.flatnonzero(np.concatenate(([True], cells[1:] != cells[:-1])))
    ends = np.append(starts[1:], cells.size)
    found: dict[tuple[Frame, bool, Frame, bool], ProgramRace] = {}
    handed: set[tuple[Frame, Frame]] = set()
    atomics = _atomics_of(known)
    for at in _suspects(known, owners, starts):
        there = [known[owner] for owner in owners[starts[at] : ends[at]]]
        low = int(cells[starts[at]]) * unit
        for first, second in _pairs_on(there, low):
            key = (first.place, first.is_write, second.place, second.is_write)
            if _may_be_ordered(first, second, atomics):
                handed.add((first.place, second.place))
            elif key not in found:
                found[key] = ProgramRace(first, second, low, low + unit)
    return list(found.values()), len(handed)


class _Runs(NamedTuple):
    """Bytes without a gap, sorted by the first. low, high: [N] int64; program: [N] of each"""

    low: NDArray[np.int64]
    high: NDArray[np.int64]
    program: NDArray[np.int64]


def _may_meet(touches: Sequence[ProgramAccess]) -> bool:
    """Whether one program may write what another touches: a look at runs of bytes, before every
    byte is looked at. Never wrong if it says no.
    """
    writes = _runs_of([touch for touch in touches if touch.is_write])
    reads = _runs_of([touch for touch in touches if not touch.is_write])
    reached = np.maximum.accumulate(writes.high)
    before = np.arange(writes.low.size)
    below = np.searchsorted(writes.low, reads.high, side="left")
    return _meet_others(writes, before, writes, reached) or _meet_others(
        reads, below, writes, reached
    )


def _meet_others(
    runs: _Runs, end: NDArray[np.int64], writes: _Runs, reached: NDArray[np.int64]
) -> bool:
    """Whether a run may overlap a write of another program. end: of each run, the writes from which
    on none begins below its end; reached: by write the highest byte of it and those before
    """
    changes = np.concatenate(([0], np.cumsum(writes.program[1:] != writes.program[:-1])))
    first = np.searchsorted(reached, runs.low, side="right")
    there = first < end
    first, last, program = first[there], end[there] - 1, runs.program[there]
    others = (writes.program[first] != program) | (changes[last] > changes[first])
    return bool(others.any())


def _runs_of(touches: Sequence[ProgramAccess]) -> _Runs:
    lows, highs, programs = [], [], []
    for touch in touches:
        starts = touch.addresses.astype(np.int64)
        steps = np.diff(starts)
        if (steps <= 0).any():
            starts = np.unique(starts)
            steps = np.diff(starts)
        breaks = np.flatnonzero(steps > touch.size)
        lows.append(starts[np.concatenate(([0], breaks + 1))])
        highs.append(starts[np.concatenate((breaks, [starts.size - 1]))] + touch.size)
        programs.append(np.full(breaks.size + 1, touch.program))
    if not lows:
        none = np.zeros(0, np.int64)
        return _Runs(none, none, none)
    low, high, program = map(np.concatenate, (lows, highs, programs))
    order = np.argsort(low, kind="stable")
    return _Runs(low[order], high[order], program[order])


def _cells(
    touches: Sequence[ProgramAccess], unit: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Which cells of so many bytes are touched, and by which touch."""
    cells, owners = [], []
    for number, touch in enumerate(touches):
        first = np.unique(touch.addresses).astype(np.int64) // unit
        whole = (first[:, None] + np.arange(touch.size // unit)).ravel()
        cells.append(whole)
        owners.append(np.full(whole.size, number))
    return np.concatenate(cells), np.concatenate(owners)


def _suspects(
    touches: Sequence[ProgramAccess], owners: NDArray[np.int64], starts: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Cells that two programs touch, one of them writing, not all by atomic operations. starts: of
    the cells among the owners
    """
    programs = np.array([touch.program for touch in touches])[owners]
    writes = np.array([touch.is_write for touch in touches])[owners]
    plain = np.array([not touch.is_atomic for touch in touches])[owners]
    several = np.minimum.reduceat(programs, starts) != np.maximum.reduceat(programs, starts)
    any_write, any_plain = (np.logical_or.reduceat(kind, starts) for kind in (writes, plain))
    return np.flatnonzero(several & any_write & any_plain)


def _pairs_on(
    there: Sequence[ProgramAccess], low: int
) -> list[tuple[ProgramAccess, ProgramAccess]]:
    """Pairs of two programs on one cell that conflict. there: all that touches it, in the order of
    the interpreter
    """
    only_stores = all(touch.values is not None for touch in there)
    if only_stores and len({_value_at(touch, low) for touch in there}) == 1:
        return []
    return [
        (first, second)
        for at, second in enumerate(there)
        for first in there[:at]
        if first.program != second.program
        and (first.is_write or second.is_write)
        and not (first.is_atomic and second.is_atomic)
    ]


def _value_at(touch: ProgramAccess, address: int) -> bytes:
    """The element that a store leaves at an address, of several there the last."""
    assert touch.values is not None
    offsets = address - touch.addresses.astype(np.int64)
    hits = np.flatnonzero((offsets >= 0) & (offsets < touch.size))
    return bytes(touch.values[hits[-1]].tobytes())


def _atomics_of(touches: Sequence[ProgramAccess]) -> dict[int, tuple[int, int]]:
    """By program where its first and its last atomic operation are."""
    found: dict[int, tuple[int, int]] = {}
    for touch in touches:
        if touch.is_atomic:
            first, _ = found.get(touch.program, (touch.at, touch.at))
            found[touch.program] = (first, touch.at)
    return found


def _may_be_ordered(
    first: ProgramAccess, second: ProgramAccess, atomics: dict[int, tuple[int, int]]
) -> bool:
    """Whether one of the programs has an atomic operation behind its access, and the other one
    before its own.
    """
    if first.program not in atomics or second.program not in atomics:
        return False
    return any(
        atomics[one.program][1] >= one.at and atomics[other.program][0] <= other.at
        for one, other in ((first, second), (second, first))
    )


class LaunchConflicts:
    """The races inside the launches of a run, by signature: each with its count."""

    def __init__(self) -> None:
        self._races: dict[str, Race] = {}
        self._places = PlaceLabels()

    def add(self, kernel: str, race: ProgramRace, *, stack: Stack, buffer: str) -> None:
        """stack: where the program launches the kernel. A race is known by lines of the kernel."""
        found = self._in_words(kernel, race, stack, buffer)
        known = self._races.get(found.signature)
        count = 1 if known is None else known.count + 1
        self._races[found.signature] = msgspec.structs.replace(known or found, count=count)

    def races(self) -> list[Race]:
        """In the order in which they were found."""
        return list(self._races.values())

    def _in_words(self, kernel: str, race: ProgramRace, stack: Stack, buffer: str) -> Race:
        first, second = (
            Side(
                operation=f"kernel {kernel}",
                label=self._places.label(kernel, (access.place,)),
                lane=f"program {access.program} of the launch",
                is_host=False,
                is_write=access.is_write,
                stack=(access.place, *stack),
            )
            for access in (race.first, race.second)
        )
        return Race(
            signature=race_signature(first, second),
            hazard=hazard_of(first_writes=first.is_write, second_writes=second.is_write),
            buffer=buffer,
            nbytes=race.high - race.low,
            count=1,
            first=first,
            second=second,
            edge=_EDGE,
            pairs=(),
        )
