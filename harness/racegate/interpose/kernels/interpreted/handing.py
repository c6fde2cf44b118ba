"""What the atomic operations of a launch order, as the memory model says: what a program does
before a release comes before what another does behind an acquire that reads from it, or from an
atomic operation that read from it.

A release is one thread's: what other threads of its program stored comes before it only if the
program came to a barrier between the two. Triton (3.8, looked at in what it compiles) puts none
there by itself.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from racegate.interpose.kernels.interpreted.accesses import AtomicEffect, ProgramAccess

WARP = 32
_CLOCKS_MAX = 1 << 23  # entries of all clocks of a launch


class AtomicRelation(StrEnum):
    """How atomic operations order two accesses in the run that was made.

    NONE: not at all; ORDERED: release and acquire do
    UNRELEASED: they would, if a barrier stood between the first access and the release
    MAYBE: by a volatile load, or by more atomic operations than are followed
    """

    NONE = "none"
    ORDERED = "ordered"
    UNRELEASED = "unreleased"
    MAYBE = "maybe"


class _Clocks(NamedTuple):
    """By program, up to which touch what it did is known: all of that, and that of the thread that
    releases.
    """

    whole: NDArray[np.int64]
    thread: NDArray[np.int64]

    def join(self, other: _Clocks) -> _Clocks:
        return _Clocks(*map(np.maximum, self, other))


class AtomicClocks:
    """Orders the accesses of a launch by its atomic operations.

    touches: of the launch, in the order of the interpreter; warps: of each program
    """

    def __init__(self, touches: Sequence[ProgramAccess], warps: int) -> None:
        programs = sorted({touch.program for touch in touches})
        self._rank = {program: rank for rank, program in enumerate(programs)}
        self._warps = warps
        atomics = [touch for touch in touches if touch.is_atomic]
        entries = sum(touch.addresses.size for touch in atomics) * len(programs)
        self._is_followed = entries <= _CLOCKS_MAX
        self._strict = self._learn(touches, AtomicEffect.ACQUIRES) if self._is_followed else {}
        either = AtomicEffect.ACQUIRES | AtomicEffect.MAYBE
        has_volatile = any(touch.handing is AtomicEffect.MAYBE for touch in atomics)
        self._lenient = self._learn(touches, either) if has_volatile and self._is_followed else {}

    def order(self, first: ProgramAccess, second: ProgramAccess) -> AtomicRelation:
        """first: stands before the second in the order of the interpreter"""
        if not self._is_followed:
            return AtomicRelation.MAYBE
        known = self._known(self._strict, first, second)
        if known is AtomicRelation.NONE and self._lenient:
            lenient = self._known(self._lenient, first, second)
            return AtomicRelation.NONE if lenient is AtomicRelation.NONE else AtomicRelation.MAYBE
        return known

    def _known(
        self,
        learnt: dict[int, tuple[list[int], list[_Clocks]]],
        first: ProgramAccess,
        second: ProgramAccess,
    ) -> AtomicRelation:
        whens, clocks = learnt.get(second.program, ([], []))
        index = bisect_right(whens, second.at) - 1
        if index < 0:
            return AtomicRelation.NONE
        rank = self._rank[first.program]
        if clocks[index].thread[rank] < first.at:
            return AtomicRelation.NONE
        is_of_thread = self._warps == 1 or first.is_atomic or first.elements <= WARP
        if is_of_thread or clocks[index].whole[rank] >= first.at:
            return AtomicRelation.ORDERED
        return AtomicRelation.UNRELEASED

    def _learn(
        self, touches: Sequence[ProgramAccess], acquiring: AtomicEffect
    ) -> dict[int, tuple[list[int], list[_Clocks]]]:
        """By program what it knows of the others, from which touch on."""
        count = len(self._rank)
        nothing = _Clocks(np.full(count, -1), np.full(count, -1))
        now: dict[int, _Clocks] = {}
        at_barrier: dict[int, tuple[int, int]] = {}
        places: dict[int, _Clocks] = {}
        learnt: dict[int, tuple[list[int], list[_Clocks]]] = {}
        for touch in touches:
            program, rank = touch.program, self._rank[touch.program]
            syncs, since = at_barrier.get(program, (touch.syncs, -1))
            if touch.syncs != syncs:
                since = touch.at - 1
            at_barrier[program] = (touch.syncs, since)
            if not touch.is_atomic:
                continue
            mine = now.get(program, nothing)
            for address in touch.addresses.tolist():
                if touch.handing & acquiring and address in places:
                    mine = mine.join(places[address])
                if touch.handing & AtomicEffect.RELEASES:
                    told = mine.join(nothing)
                    told.whole[rank], told.thread[rank] = since, touch.at
                    places[address] = places.get(address, nothing).join(told)
            if mine is not now.get(program, nothing):
                now[program] = mine
                whens, clocks = learnt.setdefault(program, ([], []))
                whens.append(touch.at)
                clocks.append(mine)
        return learnt
