"""Pages of pinned memory that the device may be using are closed, so that no touch goes unseen.

A page closes when an operation that uses it is issued, and opens at an access that is reported, at
the first touch of any other kind, and when the host has waited for the operation.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Protocol

from racegate.interpose.order.clocks import Clock, knows

_NONE, _READ, _OPEN = 0, 1, 2


class SetPages(Protocol):
    """Whole pages around [low, high); False if it could not be."""

    def __call__(self, low: int, high: int, *, mode: int) -> bool: ...


@dataclass(slots=True, eq=False)
class _Guard:
    low: int
    high: int
    lane: int
    number: int
    mode: int


def _no_pages(low: int, high: int, *, mode: int) -> bool:
    return False


class Guards:
    """The closed pages, and for which operation."""

    def __init__(self) -> None:
        self.set_pages: SetPages = _no_pages
        self._guards: list[_Guard] = []

    def has_any(self) -> bool:
        return bool(self._guards)

    def close(self, low: int, high: int, lane: int, number: int, *, is_write: bool) -> None:
        """The device uses these bytes: it writes them, or only reads."""
        mode = _NONE if is_write else _READ
        for guard in self._guards:
            if (guard.low, guard.high, guard.lane, guard.mode) == (low, high, lane, mode):
                guard.number = number  # closed already, and for longer
                return
        self.open(low, high)
        if self.set_pages(low, high, mode=mode):
            self._guards.append(_Guard(low, high, lane, number, mode))

    def open(self, low: int, high: int) -> None:
        """These bytes are about to be touched, by something that is reported or by us."""
        if not self._guards:
            return
        page = 4095
        low, high = low & ~page, (high + page) & ~page
        for guard in [g for g in self._guards if (g.low & ~page) < high and low < g.high]:
            self._open(guard)

    def open_to_read(self, low: int, high: int) -> None:
        """We are about to read these bytes: pages that only the device's reads closed stay so."""
        if any(guard.mode == _NONE for guard in self._guards):
            self.open(low, high)

    def arrive(self, clock: Clock) -> None:
        """The host knows that what the clock covers is complete."""
        for guard in [g for g in self._guards if knows(clock, g.lane, g.number)]:
            self._open(guard)

    def open_all(self) -> None:
        for guard in list(self._guards):
            self._open(guard)

    def _open(self, guard: _Guard) -> None:
        self._guards.remove(guard)
        self.set_pages(guard.low, guard.high, mode=_OPEN)


class Snapshots:
    """Registered memory shares its pages with others, so they stay open: its bytes are compared.

    What an upload reads is kept until the host has waited; bytes that changed meanwhile, without a
    write that was reported, were written below Python.
    """

    BYTES_MAX = 1 << 20  # of one upload

    def __init__(self) -> None:
        self._kept: dict[int, bytes] = {}

    def add(self, low: int, high: int) -> None:
        """The device will read [low, high)."""
        if high - low <= self.BYTES_MAX:
            self._kept[low] = ctypes.string_at(low, high - low)

    def drop(self, low: int, high: int) -> None:
        """A write of these bytes was reported, or the memory is no more."""
        kept = self._kept
        for start in [s for s, data in kept.items() if s < high and low < s + len(data)]:
            del kept[start]

    def take_changed(self) -> list[int]:
        """The first changed byte of each upload's source; nothing is kept afterwards."""
        kept, self._kept = self._kept, {}
        changed = []
        for low, data in kept.items():
            now = ctypes.string_at(low, len(data))
            if now != data:
                changed.append(low + next(i for i, byte in enumerate(data) if now[i] != byte))
        return changed
