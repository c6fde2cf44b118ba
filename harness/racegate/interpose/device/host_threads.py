"""The host threads of a program: each by a number of its own, and autograd's by whom they work for.

The number of a thread that has ended is never another's, as that of `threading.get_ident` is. What
autograd does in threads of its own belongs to the call of `backward()` that it does it for: it
comes after what its caller did, and the caller goes on after it. A thread of other C++ code has a
lane: it goes on from all that the others have done, since nobody sees how it is handed its work,
and who waits for that goes on from it.
"""

from __future__ import annotations

import _thread  # those of threading are the program's: their edges are tracked
import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import torch

from racegate.order.clocks import Clock, join
from racegate.order.recorder import Recorder

_bindings: Any = torch._C
_CALLER = "racegate.caller"  # autograd's threads have the thread-local objects of their caller


class _Caller(NamedTuple):
    """A thread that called `backward()`: its lane, and its number as Python has it."""

    lane: int
    ident: int


def _undying(caller: _Caller) -> _Caller:
    """torch 2.11 gives back a reference to what it was given to keep that it never took, with
    each call: enough of them are here for as long as any program runs.
    """
    ctypes.c_ssize_t.from_address(id(caller)).value += 1 << 30
    return caller


_NOBODY = _undying(_Caller(-1, -1))


class HostThreads:
    """Lanes of host threads. number: of the calling thread, odd if autograd started it

    acting: the lanes of those that touched pinned memory or gave the device work, but for the first
        thread, and for what autograd does for it
    ours: threads that are none of the program's, as `threading.get_ident` numbers them
    """

    def __init__(self, recorder: Recorder, number: Callable[[], int]) -> None:
        self._recorder = recorder
        self._number = number
        self._lanes = {number(): recorder.add_thread("the host")}
        self._others: dict[int, int] = {}  # of C++ code
        self._passes: dict[int, int] = {}  # by the lane of a caller: of what is done for it
        self._callers: dict[int, _Caller] = {}  # by lane
        self._served: dict[int, _Caller] = {}  # by an autograd thread: for whom it worked last
        self._inside: dict[int, int] = {}  # by a thread that calls autograd: the lane of the pass
        self.calling: list[_Caller] = []
        self.acting: set[int] = set()
        self.ours: set[int] = set()
        self._expected = set(self._lanes.values())

    def begin(self, name: str) -> None:
        """The calling thread is a new one of the program."""
        self._lanes[self._number()] = self._recorder.add_thread(f"thread {name}")

    def lane(self, number: int | None = None) -> int:
        """Of the calling thread, or of the one that has this number."""
        present = self._number() if number is None else number
        lane = self._inside.get(present, self._lanes.get(present))
        if lane is not None:
            return lane
        caller = self.caller() if number is None else self._logged(number)
        if caller is not None:
            return self._pass_of(caller.lane)
        lane = self._others.get(present)
        if lane is None:
            lane = self._others[present] = self._recorder.add_thread("a thread of C++ code")
        # What it was handed went through a queue of C++ code, which nobody sees: no alarm of that.
        handed: Clock = []
        for other in (*self._lanes.values(), *self._passes.values()):
            join(handed, self._recorder.hand_on(other))
        self._recorder.take(lane, handed)
        return lane

    def acting_lane(self, number: int | None = None) -> int:
        """The same, of a thread that touches what the device can reach."""
        lane = self.lane(number)
        if lane not in self._expected:
            self.acting.add(lane)
        return lane

    def caller(self) -> _Caller | None:
        """For whom the calling thread works, if autograd started it."""
        number = self._number()
        if _bindings._current_graph_task_id() < 0 or not _bindings._is_key_in_tls(_CALLER):
            return self._logged(number)
        caller: _Caller = _bindings._get_obj_in_tls(_CALLER)
        if caller is _NOBODY:
            return None
        self._served[number] = caller
        return caller

    @contextmanager
    def backward(self, drain: Callable[[], None]) -> Iterator[None]:
        """The calling thread calls autograd: what that does goes on from here, and is waited for;
        some of it runs in this thread itself (the root, which converts gradients, and nodes of the
        CPU). drain: takes in what was logged
        """
        drain()
        number, lane = self._number(), self.lane()
        before = self._inside.get(number)
        caller = self._callers.get(lane)
        if caller is None:
            caller = self._callers[lane] = _undying(_Caller(lane, threading.get_ident()))
        done = self._pass_of(caller.lane)
        is_inside = _bindings._is_key_in_tls(_CALLER)
        outer = _bindings._get_obj_in_tls(_CALLER) if is_inside else _NOBODY
        self._recorder.take(done, self._recorder.hand_on(caller.lane))
        self.calling.append(caller)
        self._inside[number] = done
        _bindings._stash_obj_in_tls(_CALLER, caller)
        try:
            yield
        finally:
            drain()
            _bindings._stash_obj_in_tls(_CALLER, outer)
            self.calling.remove(caller)
            self._inside.pop(number)
            if before is not None:
                self._inside[number] = before
            self._recorder.take(caller.lane, self._recorder.hand_on(done))

    @contextmanager
    def on_stream(self, lane: int, drain: Callable[[], None]) -> Iterator[None]:
        """What the calling thread does here is work of a stream: the body of a host function. lane:
        of what this thread gives the stream; drain: as of `backward`
        """
        drain()
        number = self._number()
        before = self._inside.get(number)
        self._inside[number] = lane
        self._expected.add(lane)
        try:
            yield
        finally:
            drain()
            self._inside.pop(number)
            if before is not None:
                self._inside[number] = before

    def hand_on(self) -> Clock:
        """The calling thread releases a lock, puts into a queue, starts or ends a thread."""
        return self._recorder.hand_on(self.lane())

    def take(self, clock: Clock) -> None:
        """The calling thread learns what another handed on."""
        self._recorder.take(self.lane(), clock)

    def take_from_others(self) -> None:
        """The calling thread has waited for what threads of C++ code were handed."""
        for other in list(self._others.values()):
            self.take(self._recorder.hand_on(other))

    def _logged(self, number: int) -> _Caller | None:
        """For whom a thread of autograd did what was logged: whom it worked for last, unless only
        somebody else is waiting.
        """
        last = self._served.get(number)
        if last is None and not number % 2:
            return None
        calling = tuple(self.calling)  # another thread may return from its call meanwhile
        return calling[0] if len(calling) == 1 else last

    def _pass_of(self, caller: int) -> int:
        lane = self._passes.get(caller)
        if lane is None:
            name = self._recorder.lanes.names[caller]
            of = "" if caller == 0 else f" of {name}"
            lane = self._passes.setdefault(
                caller, self._recorder.add_thread(f"the backward pass{of}")
            )
            if caller in self._expected:
                self._expected.add(lane)
        return lane


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
        with suppress(IndexError):  # another thread may let the last one go
            while True:
                self._held.pop().release()
