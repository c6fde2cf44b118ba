"""What the virtual runtime logs of its calls, asked without a program."""

from __future__ import annotations

import ctypes
import threading

from cuda_torch import needs_cuda_torch
from racegate.interpose.build import build_library, find_toolkit
from racegate.interpose.device.library import Library, Logged

NOT_READY = 600


@needs_cuda_torch
def test_a_query_is_logged_if_it_finds_a_record_complete_and_the_thread_is_no_watchdog() -> None:
    library = Library(build_library(find_toolkit()))
    calls = ctypes.CDLL(library._library._name)
    calls.vg_take_asked.restype = ctypes.c_uint64
    made = ctypes.c_uint64()

    def ask() -> tuple[int, list[tuple[int, int]]]:
        """What a query answers, and what is logged: events with the numbers of their records."""
        answer = calls.cudaEventQuery(made)
        entries = [*library.drain()]
        return answer, [(one.a, one.b) for one in entries if one.kind == Logged.QUERY_TRUE]

    def watch() -> None:
        calls.vg_ask_in_silence()
        silent.append(ask())

    silent: list[object] = []
    assert calls.cudaEventCreate(ctypes.byref(made)) == 0
    event = made.value
    assert ask() == (0, []), "nothing was recorded"
    assert calls.cudaEventRecord(made, None) == 0
    (record,) = (one for one in library.drain() if one.kind == Logged.EVENT_RECORD)
    assert ask() == (NOT_READY, [])
    assert (calls.vg_take_asked(), calls.vg_take_asked()) == (event, 0)
    library.settle_event(event, record.c)
    assert ask() == (0, [(event, record.c)])
    watchdog = threading.Thread(target=watch)
    watchdog.start()
    watchdog.join()
    assert silent == [(0, [])]
