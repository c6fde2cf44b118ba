"""Watchdog: ends a wait that only a latch keeps from ending.

A host that is blocked cannot open latches itself. What blocks it may be unknown to the program: a
call that waits for the whole device, or two streams in one hardware queue.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread


class Watchdog:
    """Calls `on_expiry`, from its own thread, when the host has not been heard of for too long."""

    def __init__(self, *, seconds: float, on_expiry: Callable[[], None]) -> None:
        self._seconds = seconds
        self._on_expiry = on_expiry
        self._stopped = Event()
        self._thread: Thread | None = None
        self._beats = 0
        self.has_expired = False

    def beat(self) -> None:
        """The host is alive."""
        self._beats += 1

    def start(self) -> None:
        """From the first latch on."""
        if self._thread is None:
            self._thread = Thread(target=self._watch, name="racegate-watchdog", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """The run has ended."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        beats = -1
        while not self._stopped.wait(self._seconds):
            if beats == self._beats:
                self.has_expired = True
                self._on_expiry()
                return
            beats = self._beats
