"""Edges between host threads: locks, queues, thread start and join; and the mode in each thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

from racegate.interpose.device.session import Session
from racegate.order.clocks import Clock, join

MakeMode = Callable[[], Any]


class TrackedLock:
    """A lock that hands on what its last holder did. Takes the place of threading.Lock."""

    def __init__(self, session: Session, lock: Any) -> None:
        self._session = session
        self._lock = lock
        self._clock: Clock = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # noqa: FBT001, FBT002
        """As threading.Lock: positional, because programs call it so."""
        taken = bool(self._lock.acquire(blocking=False))
        if not taken and blocking:
            self._session.held_threads.let_go()
            taken = bool(self._lock.acquire(blocking, timeout))
        if taken and self._clock:
            self._session.recorder.take(self._session.thread_lane(), self._clock)
        return taken

    def release(self) -> None:
        session = self._session
        session.drain()
        join(self._clock, session.recorder.hand_on(session.thread_lane()))
        self._lock.release()

    def locked(self) -> bool:
        return bool(self._lock.locked())

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *exc: object) -> None:
        self.release()

    def __getattr__(self, name: str) -> Any:  # _is_owned, _release_save, ... of an RLock
        return getattr(self._lock, name)


def track_threads(session: Session, make_mode: MakeMode) -> None:
    """Locks made from now on, and threads started from now on, carry their edges.

    queue.Queue, Condition, Event, Semaphore, Barrier and futures are made of these locks; executors
    also of queue.SimpleQueue, which is written in C.
    """
    _track_locks(session)
    queue.SimpleQueue = _tracked_queue(session)  # type: ignore[misc, assignment]
    _track_starts(session, make_mode)


def _track_locks(session: Session) -> None:
    plain = threading.Lock

    def tracked() -> TrackedLock:
        return TrackedLock(session, plain())

    threading.Lock = tracked  # type: ignore[assignment]
    threading._allocate_lock = tracked  # type: ignore[attr-defined]
    threading.RLock = _tracked_rlock(session)  # type: ignore[assignment]


def _tracked_rlock(session: Session) -> Callable[[], Any]:
    """The RLock that the standard library writes in Python, over a tracked lock."""
    plain = threading._PyRLock  # type: ignore[attr-defined]

    def tracked() -> Any:
        return plain()

    return tracked


def _tracked_queue(session: Session) -> type:
    """SimpleQueue whose items carry what the thread that put them had done."""
    plain: Any = queue.SimpleQueue

    class SimpleQueue(plain):  # type: ignore[misc]
        """As queue.SimpleQueue."""

        def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:  # noqa: FBT001, FBT002
            session.drain()
            super().put((session.recorder.hand_on(session.thread_lane()), item))

        def put_nowait(self, item: Any) -> None:
            self.put(item)

        def get(self, block: bool = True, timeout: float | None = None) -> Any:  # noqa: FBT001, FBT002
            clock, item = super().get(block, timeout)
            session.recorder.take(session.thread_lane(), clock)
            return item

        def get_nowait(self) -> Any:
            return self.get(block=False)

    return SimpleQueue


def _track_starts(session: Session, make_mode: MakeMode) -> None:
    start, run_all, join_plain = (
        threading.Thread.start,
        threading.Thread._bootstrap_inner,  # type: ignore[attr-defined]
        threading.Thread.join,
    )

    def tracked_start(thread: threading.Thread) -> None:
        session.drain()
        thread._racegate_begin = session.recorder.hand_on(  # type: ignore[attr-defined]
            session.thread_lane()
        )
        start(thread)

    def tracked_bootstrap(thread: Any) -> None:
        ident = threading.get_ident()
        session.forget_thread(ident)
        lane = session.thread_lane(ident)
        session.recorder.lanes.names[lane] = f"thread {thread.name}"
        session.recorder.take(lane, getattr(thread, "_racegate_begin", []))
        with make_mode():
            run_all(thread)
        session.drain()
        thread._racegate_end = session.recorder.hand_on(session.thread_lane(ident))

    def tracked_join(thread: threading.Thread, timeout: float | None = None) -> None:
        session.held_threads.let_go()
        join_plain(thread, timeout)
        end = getattr(thread, "_racegate_end", None)
        if not thread.is_alive() and end is not None:
            session.recorder.take(session.thread_lane(), end)

    threading.Thread.start = tracked_start  # type: ignore[method-assign, assignment]
    threading.Thread._bootstrap_inner = tracked_bootstrap  # type: ignore[attr-defined]
    threading.Thread.join = tracked_join  # type: ignore[method-assign, assignment]
