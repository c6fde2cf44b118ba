"""Host threads that a hold keeps back before an access, until another thread waits for them."""

from __future__ import annotations

import _thread  # those of threading are the program's: their edges are tracked


class HeldThreads:
    """Threads stopped until another comes to a lock that is taken, or to a join.

    A thread may be waited for in ways that nobody sees: after PATIENCE_S it goes on.
    """

    PATIENCE_S = 2.0

    def __init__(self) -> None:
        self._held: list[_thread.LockType] = []

    def keep_back(self) -> None:
        """The calling thread stops here."""
        lock = _thread.allocate_lock()
        lock.acquire()
        self._held.append(lock)
        lock.acquire(timeout=self.PATIENCE_S)

    def let_go(self) -> None:
        """The calling thread is about to wait for another."""
        while self._held:
            self._held.pop().release()
