"""Edges between host threads: locks, queues, thread start and join; and the mode in each thread.

That one thread came first, or that Python runs one at a time, is no edge.
"""

from __future__ import annotations

import _thread
import queue
import threading
import traceback
from asyncio import base_events
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any

from racegate.interpose.device.session import Session
from racegate.interpose.program.failures import is_ours, words_for
from racegate.order.clocks import Clock, join

MakeMode = Callable[[], Any]


# Of a process group: what its threads of C++ code are given to do.
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
            self._session.take(self._clock)
        return taken

    def release(self) -> None:
        join(self._clock, self._session.hand_on())
        self._lock.release()

    def locked(self) -> bool:
        return bool(self._lock.locked())

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *exc: object) -> None:
        self.release()

    def __getattr__(self, name: str) -> Any:  # _is_owned, _release_save, ... of an RLock
        return getattr(self._lock, name)


def track_threads(session: Session, make_mode: MakeMode, refuse: Callable[[str], None]) -> None:
    """Locks made from now on, and threads started from now on, carry their edges. refuse: ends the
    run if racegate fails in a thread.

    queue.Queue, Condition, Semaphore, Barrier and futures are made of these locks; executors also
    of queue.SimpleQueue, which is written in C.
    """
    _track_locks(session)
    queue.SimpleQueue = _tracked_queue(session)  # type: ignore[misc, assignment]
    _track_flags(session)
    _track_loops(session)
    _track_starts(session, make_mode, refuse)
    _track_raw_starts(session, make_mode)


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
            super().put((session.hand_on(), item))

        def put_nowait(self, item: Any) -> None:
            self.put(item)

        def get(self, block: bool = True, timeout: float | None = None) -> Any:  # noqa: FBT001, FBT002
            clock, item = super().get(block, timeout)
            session.take(clock)
            return item

        def get_nowait(self) -> Any:
            return self.get(block=False)

    return SimpleQueue


def _track_flags(session: Session) -> None:
    """Who sees that an Event is set goes on from who set it, without a lock too."""
    is_set, put_up = threading.Event.is_set, threading.Event.set

    def tracked_set(event: threading.Event) -> None:
        event._racegate_set = session.hand_on()  # type: ignore[attr-defined]
        put_up(event)

    def tracked_is_set(event: threading.Event) -> bool:
        answer = is_set(event)
        if answer:
            session.take(getattr(event, "_racegate_set", []))
        return answer

    threading.Event.set = tracked_set  # type: ignore[method-assign, assignment]
    threading.Event.is_set = tracked_is_set  # type: ignore[method-assign, assignment]


def _track_loops(session: Session) -> None:
    """What another thread asks a loop of asyncio to call goes on from there."""
    ask = base_events.BaseEventLoop.call_soon_threadsafe

    def tracked(loop: Any, callback: Any, *args: Any, context: Any = None) -> Any:
        clock = session.hand_on()

        def called(*args: Any) -> None:
            session.take(clock)
            callback(*args)

        return ask(loop, called, *args, context=context)

    base_events.BaseEventLoop.call_soon_threadsafe = tracked  # type: ignore[method-assign, assignment]


@contextmanager
def _mourned(thread: Any, refuse: Callable[[str], None]) -> Iterator[None]:
    """If the thread dies of an error of racegate's, the run ends with its name."""
    run = thread.run

    def refuse_ours(kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None and is_ours(error):
            traceback.print_exception(error)
            refuse(words_for(error, f"thread {thread.name}"))

    def run_or_refuse() -> None:
        with ExitStack() as stack:
            stack.push(refuse_ours)
            run()

    thread.run = run_or_refuse
    try:
        yield
    finally:
        del thread.run


def _track_starts(session: Session, make_mode: MakeMode, refuse: Callable[[str], None]) -> None:
    start, run_all, join_plain, is_alive = (
        threading.Thread.start,
        threading.Thread._bootstrap_inner,  # type: ignore[attr-defined]
        threading.Thread.join,
        threading.Thread.is_alive,
    )

    def tracked_start(thread: threading.Thread) -> None:
        thread._racegate_begin = session.hand_on()  # type: ignore[attr-defined]
        start(thread)

    def tracked_bootstrap(thread: Any) -> None:
        session.host_threads.begin(thread.name)
        session.take(getattr(thread, "_racegate_begin", []))
        with make_mode(), _mourned(thread, refuse):
            run_all(thread)
        thread._racegate_end = session.hand_on()

    def learn_end(thread: threading.Thread) -> None:
        end = getattr(thread, "_racegate_end", None)
        if end is not None:
            session.take(end)

    def tracked_join(thread: threading.Thread, timeout: float | None = None) -> None:
        session.held_threads.let_go()
        join_plain(thread, timeout)
        if not is_alive(thread):
            learn_end(thread)

    def tracked_is_alive(thread: threading.Thread) -> bool:
        answer = is_alive(thread)
        if not answer:
            learn_end(thread)
        return answer

    threading.Thread.start = tracked_start  # type: ignore[method-assign, assignment]
    threading.Thread._bootstrap_inner = tracked_bootstrap  # type: ignore[attr-defined]
    threading.Thread.join = tracked_join  # type: ignore[method-assign, assignment]
    threading.Thread.is_alive = tracked_is_alive  # type: ignore[method-assign, assignment]


def _track_raw_starts(session: Session, make_mode: MakeMode) -> None:
    """`_thread.start_new_thread`, by which threading starts no thread of its own: it has another
    name for it.
    """
    start = _thread.start_new_thread

    def tracked(function: Any, args: Any, kwargs: Any = None) -> int:
        clock = session.hand_on()

        def begun(*args: Any, **kwargs: Any) -> None:
            session.host_threads.begin(getattr(function, "__name__", "without a name"))
            session.take(clock)
            with make_mode():
                function(*args, **kwargs)

        return start(begun, args, kwargs or {})

    _thread.start_new_thread = tracked
    _thread.start_new = tracked


def track_collectives(session: Session, distributed: ModuleType) -> None:
    """Of a process group as Python has it. distributed: the module `torch.distributed`"""
    if not distributed.is_available():
        return
    bindings: Any = distributed.distributed_c10d
    bindings.Work.wait = _waiting(session, bindings.Work.wait)


def _waiting(session: Session, original: Callable[..., Any]) -> Callable[..., Any]:
    def wait(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        session.drain()
        session.host_threads.take_from_others()
        return result

    return wait
