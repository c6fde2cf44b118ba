"""What pinned memory holds whose pages cannot be closed, while the device may be using it.

Registered memory shares its first and last page with other data, other processes write what they
share with this one, and there are more buffers than pages that can be watched. There a write that
nobody reports changes bytes, and is known by that when the host has waited.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from racegate.order.clocks import Clock, knows
from racegate.order.memory import Access
from racegate.order.ranges import Ranges, merged

RUNS_MAX = 16
ELEMENT = 4


@dataclass(frozen=True, slots=True, eq=False)
class KeptEntry:
    """Bytes from `low` on as they were when `access` had them. toucher: the thread that was seen
    writing beside them since.
    """

    low: int
    data: bytes
    access: Access
    toucher: int | None = None

    @property
    def high(self) -> int:
        return self.low + len(self.data)

    def changed(self) -> Ranges:
        """The bytes that are others now; none where the memory is no more."""
        now = peek(self.low, self.high)
        if now is None or now == self.data:
            return ()
        return changed_ranges(self.low, self.data, now)


class KeptMemory:
    """Copies of what pending operations use, to be compared once each."""

    BYTES_MAX = 1 << 26  # of all copies together

    def __init__(self) -> None:
        self._kept: list[KeptEntry] = []
        self._size = 0

    def add(self, low: int, high: int, access: Access) -> bool:
        """The operation uses [low, high). False if that is too much to keep."""
        self.forget(low, high)
        if self._size + high - low > self.BYTES_MAX:
            return False
        data = peek(low, high)
        if data is not None:
            self._put(KeptEntry(low, data, access))
        return True

    def forget(self, low: int, high: int) -> None:
        """A write of these bytes was reported, or the memory is no more."""
        for kept in self._take_over(low, high):
            if kept.low < low:
                self._put(replace(kept, data=kept.data[: low - kept.low]))
            if high < kept.high:
                self._put(replace(kept, low=high, data=kept.data[high - kept.low :]))

    def touched(self, low: int, high: int, thread: int) -> None:
        """The thread was seen writing somewhere in [low, high)."""
        for kept in self._take_over(low, high):
            self._put(replace(kept, toucher=thread))

    def take(self, low: int, high: int) -> list[KeptEntry]:
        """What is about to be used again and has changed."""
        return [kept for kept in self._take_over(low, high) if kept.changed()]

    def arrive(self, clock: Clock) -> list[KeptEntry]:
        """The host knows that what the clock covers is complete: what has changed before that."""
        return [kept for kept in self.give_up(clock) if kept.changed()]

    def give_up(self, clock: Clock) -> list[KeptEntry]:
        """What the clock covers is kept no longer; returns it."""
        if not self._kept:
            return []
        done = [kept for kept in self._kept if knows(clock, kept.access.lane, kept.access.number)]
        self._drop(done)
        return done

    def end(self) -> list[KeptEntry]:
        """Nothing is waited for any more: what has changed until now."""
        done, self._kept = self._kept, []
        return [kept for kept in done if kept.changed()]

    def _take_over(self, low: int, high: int) -> list[KeptEntry]:
        if not self._kept:
            return []
        taken = [kept for kept in self._kept if kept.low < high and low < kept.high]
        self._drop(taken)
        return taken

    def _put(self, kept: KeptEntry) -> None:
        self._kept.append(kept)
        self._size += len(kept.data)

    def _drop(self, gone: list[KeptEntry]) -> None:
        if gone:
            self._kept = [kept for kept in self._kept if kept not in gone]
            self._size -= sum(len(kept.data) for kept in gone)


def changed_ranges(low: int, before: bytes, now: bytes) -> Ranges:
    """Where the bytes from `low` on differ.

    In more than RUNS_MAX places, bytes between two that differ count too if they are fewer than
    ELEMENT: what is written anew keeps some of its bytes by chance.
    """
    differ = np.frombuffer(before, np.uint8) != np.frombuffer(now, np.uint8)
    places = [low + index for index in np.flatnonzero(differ).tolist()]
    runs = merged((place, place + 1) for place in places)
    if len(runs) <= RUNS_MAX:
        return runs
    grown = merged((start, end + ELEMENT - 1) for start, end in runs)
    return tuple((start, end - ELEMENT + 1) for start, end in grown)


def peek(low: int, high: int) -> bytes | None:
    """The bytes [low, high), whether or not their pages are closed; None if there is no memory."""
    try:
        memory = os.open("/proc/self/mem", os.O_RDONLY)
    except OSError:
        return ctypes.string_at(low, high - low)
    try:
        data = os.pread(memory, high - low, low)
    except OSError:
        return None
    finally:
        os.close(memory)
    return data if len(data) == high - low else None


def is_shared_mapping(address: int) -> bool:
    """Whether other processes may have the memory at this address too."""
    maps = Path("/proc/self/maps")
    for line in maps.read_text(encoding="ascii", errors="replace").splitlines():
        bounds, modes = line.split(maxsplit=2)[:2]
        low, high = (int(bound, 16) for bound in bounds.split("-"))
        if low <= address < high:
            return modes[3] == "s"
    return False
