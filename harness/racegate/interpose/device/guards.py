"""Pages of pinned memory that the device may be using are closed, so that no touch goes unseen.

A page closes when an operation that uses it is issued. It opens at an access that is reported, and
at the first touch of any other kind, until the thread comes to the device again; and for good when
the host has waited for the operation.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from racegate.order.clocks import Clock, knows

_NONE, _READ, OPEN = 0, 1, 2
PAGE = 4096


class SetPages(Protocol):
    """Whole pages around [low, high); False if it could not be."""

    def __call__(self, low: int, high: int, *, mode: int) -> bool: ...


@dataclass(slots=True, eq=False)
class _Guard:
    """low, high: whole pages; lifters: threads for whose accesses they stand open."""

    low: int
    high: int
    lane: int
    number: int
    mode: int
    lifters: set[int] = field(default_factory=set)


class Guards:
    """The closed pages, and for which operation. has_lifted: some stand open for a thread"""

    def __init__(self, set_pages: SetPages) -> None:
        self._set_pages = set_pages
        self._guards: list[_Guard] = []
        self.has_lifted = False

    def has_any(self) -> bool:
        return bool(self._guards)

    def close(self, low: int, high: int, lane: int, number: int, *, is_write: bool) -> bool:
        """The device uses these bytes: it writes them, or only reads. False: it cannot be."""
        mode = _NONE if is_write else _READ
        low, high = low & -PAGE, (high + PAGE - 1) & -PAGE
        others = []
        for guard in self._guards:
            if (guard.low, guard.high, guard.lane, guard.mode) == (low, high, lane, mode):
                guard.number = number  # closed already, and for longer
                return True
            if guard.low < high and low < guard.high:
                others.append(guard)
        lifters = {thread for guard in others for thread in guard.lifters}
        lifters.discard(threading.get_ident())  # it comes to the device now
        if not lifters and not self._set_pages(low, high, mode=mode):
            return False
        self._guards.append(_Guard(low, high, lane, number, mode, lifters))
        self._close_again(others)
        return True

    def lift(self, low: int, high: int) -> None:
        """This thread is about to touch these bytes, and that is reported, or ours."""
        if not self._guards:
            return
        thread = threading.get_ident()
        for guard in self._guards:
            if guard.low < high and low < guard.high and thread not in guard.lifters:
                guard.lifters.add(thread)
                self.has_lifted = True
                self._set_pages(guard.low, guard.high, mode=OPEN)
                self.lift(guard.low, guard.high)  # others on the same pages stand open now

    def note_open(self, low: int, high: int) -> None:
        """A touch has opened a page: it closes again when this thread goes on."""
        for guard in self._guards:
            if guard.low < high and low < guard.high:
                guard.lifters.add(threading.get_ident())
                self.has_lifted = True

    def lift_to_read(self, low: int, high: int) -> None:
        """We are about to read these bytes: pages that only the device's reads closed stay so."""
        if any(g.mode == _NONE and g.low < high and low < g.high for g in self._guards):
            self.lift(low, high)

    def settle(self) -> None:
        """What this thread touched it has touched: the pages that it lifted close again."""
        if self.has_lifted:
            self._settle(self._guards)

    @contextmanager
    def landing(self, lane: int, number: int) -> Iterator[None]:
        """This thread does an operation that was issued before: its pages stand open meanwhile."""
        thread = threading.get_ident()
        closed = [guard for guard in self._guards if thread not in guard.lifters]
        for guard in closed:
            if guard.lane == lane and guard.number >= number:
                self.lift(guard.low, guard.high)
        try:
            yield
        finally:
            self._settle(closed)

    def _settle(self, guards: list[_Guard]) -> None:
        thread = threading.get_ident()
        settled = [guard for guard in guards if thread in guard.lifters]
        for guard in settled:
            guard.lifters.discard(thread)
        self.has_lifted = any(guard.lifters for guard in self._guards)
        self._close_again([guard for guard in settled if guard in self._guards])

    def drop(self, low: int, high: int) -> None:
        """These bytes are the device's own work from now on, or are no more."""
        self._end([guard for guard in self._guards if guard.low < high and low < guard.high])

    def arrive(self, clock: Clock) -> None:
        self._end([guard for guard in self._guards if knows(clock, guard.lane, guard.number)])

    def open_all(self) -> None:
        self._end(list(self._guards))

    def is_written(self, low: int, high: int) -> bool:
        """Whether an operation that may be pending writes on these pages."""
        return any(g.mode == _NONE and g.low < high and low < g.high for g in self._guards)

    def _end(self, done: list[_Guard]) -> None:
        if not done:
            return
        self._guards = [guard for guard in self._guards if guard not in done]
        for guard in done:
            self._set_pages(guard.low, guard.high, mode=OPEN)
        self._close_again(
            [g for g in self._guards if any(g.low < d.high and d.low < g.high for d in done)]
        )

    def _close_again(self, guards: list[_Guard]) -> None:
        """Pages that nobody has lifted; the stricter mode last, so that it stands."""
        for guard in sorted(guards, key=lambda guard: -guard.mode):
            if not guard.lifters:
                self._set_pages(guard.low, guard.high, mode=guard.mode)
