"""What threads of a program do to the session without its lock: each loses its turn where it would
do the most harm.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest

from bare_session import NoRuntime
from racegate.interpose.device.host_threads import HeldThreads, HostThreads
from racegate.interpose.device.queue import Queue
from racegate.interpose.device.session import Session
from racegate.interpose.native import streams
from racegate.order.recorder import Recorder

OF_AUTOGRAD = 3


class Emptied(list[Any]):
    """A list with one entry, which another thread takes as soon as it was looked at."""

    def __len__(self) -> int:
        self.clear()
        return 1


def test_a_stream_is_used_first_while_another_thread_waits_for_the_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known, gpu_of = streams.DeviceStreams(Recorder()), streams._gpu_of_default

    def lose_the_turn(handle: int) -> int:
        known.known.setdefault(77, 5)
        return gpu_of(handle)

    monkeypatch.setattr(streams, "_gpu_of_default", lose_the_turn)
    assert known.of_gpu(0) == [0, 1]
    assert known.of_gpu(0) == [0, 1, 77]


def test_a_thread_of_cpp_code_comes_while_another_takes_over_from_them() -> None:
    recorder, number = Recorder(), [0]
    hosts = HostThreads(recorder, lambda: number[0])
    hosts.lane(2)
    hand_on = recorder.hand_on

    def lose_the_turn(thread: int) -> list[int]:
        recorder.hand_on = hand_on  # type: ignore[method-assign]
        hosts.lane(4)
        return hand_on(thread)

    recorder.hand_on = lose_the_turn  # type: ignore[assignment]
    hosts.take_from_others()
    assert len(recorder.lanes.threads()) == 3


def test_the_only_caller_of_autograd_returns_while_another_thread_looks_for_it() -> None:
    hosts = HostThreads(Recorder(), lambda: 0)
    hosts.calling = Emptied([None])
    assert hosts._logged(OF_AUTOGRAD) is None


def test_two_threads_let_the_last_one_go() -> None:
    held, lock = HeldThreads(), threading.Lock()
    lock.acquire()
    held._held = Emptied([lock])
    held.let_go()
    assert [*held._held] == []


def test_what_a_stream_was_given_is_forced_by_one_thread_at_a_time() -> None:
    session, got = Session(NoRuntime()), []

    class Asking(Queue):
        def force(self, clock: Any) -> None:
            asks = threading.Thread(target=lambda: got.append(session.lock.acquire(blocking=False)))
            asks.start()
            asks.join()

    session.begin(Asking())
    session.force_stream(0)
    assert got == [False]
