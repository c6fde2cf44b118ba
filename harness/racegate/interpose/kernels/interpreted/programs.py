"""The programs of one launch: nothing orders them but what atomic operations hand over.

A compiled kernel runs its programs at the same time, in any order; the interpreter runs them one
after the other. Two that touch the same bytes, of which one writes, race. Atomic operations do not
race with each other, and by them a program may hand over to another: what one does before an atomic
operation may come before what another does behind one, so that such a pair is counted, and no race.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from racegate.history.finding import Frame, Hazard, KernelTotal, Race, Side, Stack, hazard_of
from racegate.interpose.kernels.interpreted.accesses import (
    LaunchJudged,
    LaunchRace,
    MissingEdge,
    ProgramAccess,
)
from racegate.interpose.kernels.interpreted.handing import AtomicClocks, AtomicRelation
from racegate.order.findings import race_signature
from racegate.order.recorder import PlaceLabels


class ProgramRaces(NamedTuple):
    """races: for each two lines of the kernel one
    ordered: pairs of lines that are in order in this run by atomic operations
    untold: pairs of lines that these may order
    """

    races: list[LaunchRace]
    ordered: int
    untold: int


def judge_programs(touches: Sequence[ProgramAccess], warps: int = 1) -> ProgramRaces:
    """What two programs of a launch do to the same bytes without an order. Programs that write one
    value to an element, which none of them reads, do not race there.

    touches: of the launch, in the order of the interpreter; warps: of each program
    """
    known = [touch for touch in touches if touch.addresses.size]
    if len({touch.program for touch in known}) < 2 or not _may_meet(known):
        return ProgramRaces([], 0, 0)
    races: dict[_Lines, LaunchRace] = {}
    by_order: dict[AtomicRelation, set[_Lines]] = {
        AtomicRelation.ORDERED: set(),
        AtomicRelation.MAYBE: set(),
    }
    atomics = _atomics_of(known)
    handed = AtomicClocks(known, warps) if len(atomics) > 1 else None
    for first, second, low, high in _conflicts(known):
        lines = (first.place, first.is_write, second.place, second.is_write)
        order = AtomicRelation.NONE
        if handed is not None and _may_be_ordered(first, second, atomics):
            order = handed.order(first, second)
        if order in by_order:
            by_order[order].add(lines)
        elif lines not in races:
            lack = (
                MissingEdge.RELEASE if order is AtomicRelation.UNRELEASED else MissingEdge.PROGRAMS
            )
            races[lines] = LaunchRace(first, second, low, high, lack)
    ordered, untold = (lines - races.keys() for lines in by_order.values())
    return ProgramRaces(list(races.values()), len(ordered), len(untold - ordered))


_Lines = tuple[Frame, bool, Frame, bool]  # of two accesses, each with whether it writes


def _conflicts(
    touches: Sequence[ProgramAccess],
) -> Iterator[tuple[ProgramAccess, ProgramAccess, int, int]]:
    """Two programs' accesses of the same bytes, of each line that which comes last before; the
    first in the order of the interpreter, and bytes that they share.
    """
    unit = int(np.gcd.reduce([touch.size for touch in touches]))
    if any((touch.addresses % np.uint64(unit)).any() for touch in touches):
        unit = 1
    cells, owners = _cells(touches, unit)
    order = np.argsort(cells, kind="stable")
    cells, owners = cells[order], owners[order]
    starts = np.flatnonzero(np.concatenate(([True], cells[1:] != cells[:-1])))
    ends = np.append(starts[1:], cells.size)
    known: set[bytes] = set()
    for at in _suspects(touches, owners, starts):
        whose = owners[starts[at] : ends[at]]
        there = [touches[owner] for owner in whose]
        low = int(cells[starts[at]]) * unit
        if all(touch.values is not None for touch in there):
            if len({_value_at(touch, low) for touch in there}) == 1:
                continue
        elif whose.tobytes() in known:
            continue
        known.add(whose.tobytes())
        for first, second in _pairs_on(there):
            yield first, second, low, low + unit


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


def _pairs_on(there: Sequence[ProgramAccess]) -> Iterator[tuple[ProgramAccess, ProgramAccess]]:
    """Pairs of two programs on one cell that conflict: for each access the last ones before it, of
    each line. there: all that touches it, in the order of the interpreter
    """
    last: dict[tuple[Frame, bool, bool], list[ProgramAccess]] = {}
    for second in there:
        for before in last.values():
            first = before[-1] if before[-1].program != second.program else before[0]
            if first.program != second.program and _is_conflict(first, second):
                yield first, second
        before = last.setdefault((second.place, second.is_write, second.is_atomic), [])
        # The last access, and the last one of another program before it.
        if before and before[-1].program == second.program:
            before[-1] = second
        else:
            before[:] = [*before[-1:], second]


def _is_conflict(first: ProgramAccess, second: ProgramAccess) -> bool:
    return (first.is_write or second.is_write) and not (first.is_atomic and second.is_atomic)


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


def races_beyond(touches: Sequence[ProgramAccess]) -> list[LaunchRace]:
    """Accesses that leave the memory which a launch was given, of each line the first."""
    found: dict[object, LaunchRace] = {}
    for touch in touches:
        low = int(touch.addresses.min())
        race = LaunchRace(touch, touch, low, low + touch.size, MissingEdge.OUTSIDE)
        found.setdefault((touch.place, touch.is_write), race)
    return list(found.values())


# Where one access is enough.
_ALONE = {MissingEdge.OUTSIDE: Hazard.OUTSIDE, MissingEdge.UNWRITTEN: Hazard.UNINITIALISED}


class LaunchConflicts:
    """What is found inside the launches of a run: races by signature, each with its count, and what
    was launched by kernel.
    """

    def __init__(self) -> None:
        self._races: dict[str, Race] = {}
        self._places = PlaceLabels()
        self._launched: dict[tuple[str, Frame], list[LaunchJudged]] = {}
        self._lines: dict[tuple[str, Frame], set[str]] = {}

    def add(self, launch: LaunchJudged, *, stack: Stack, buffers: Sequence[str]) -> None:
        """stack: where the program launches it; buffers: names of what its races are about. A race
        is known by lines of the kernel.
        """
        key = (launch.kernel, launch.place)
        self._launched.setdefault(key, []).append(launch._replace(races=()))
        for race, buffer in zip(launch.races, buffers, strict=True):
            found = self._in_words(launch.kernel, race, stack, buffer)
            known = self._races.get(found.signature)
            count = 1 if known is None else known.count + 1
            self._races[found.signature] = msgspec.structs.replace(known or found, count=count)
            self._lines.setdefault(key, set()).add(found.signature)

    def races(self) -> list[Race]:
        """In the order in which they were found."""
        return list(self._races.values())

    def kernels(self) -> tuple[KernelTotal, ...]:
        """In the order of their first launch."""
        return tuple(
            KernelTotal(
                name=name,
                file=place[0],
                line=place[1],
                launches=len(launches),
                programs=sum(one.programs for one in launches),
                findings=len(self._lines.get((name, place), ())),
                untold=max(one.untold for one in launches),
            )
            for (name, place), launches in list(self._launched.items())
        )

    def _in_words(self, kernel: str, race: LaunchRace, stack: Stack, buffer: str) -> Race:
        at_launch = race.before is not None
        alone = _ALONE.get(race.lack)
        if alone is Hazard.OUTSIDE and buffer.startswith("memory at "):
            buffer = (
                "memory that no tensor has"  # its address says nothing, and is another each time
            )
        first = self._side(*(race.before or (kernel, stack)), race.first, at_launch=at_launch)
        second = self._side(kernel, stack, race.second, at_launch=at_launch)
        return Race(
            signature=race_signature(first, second),
            hazard=alone or hazard_of(first_writes=first.is_write, second_writes=second.is_write),
            buffer=buffer,
            nbytes=race.high - race.low,
            count=1,
            first=first,
            second=second,
            edge=race.lack.value,
            pairs=(),
        )

    def _side(self, kernel: str, stack: Stack, access: ProgramAccess, *, at_launch: bool) -> Side:
        """at_launch: it is known by the line that launches it, and not by that of the kernel"""
        frames = (access.place, *stack)
        return Side(
            operation=f"kernel {kernel}",
            label=self._places.label(kernel, frames[1:2] if at_launch and stack else frames[:1]),
            lane=f"program {access.program} of the launch",
            is_host=False,
            is_write=access.is_write,
            stack=frames,
        )
