"""Being told to stop while something must not be left half done."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

# Those besides Ctrl-C, which Python knows.
TERMINATING = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
STOPS = (signal.SIGINT, *TERMINATING)


@contextmanager
def stops_later() -> Iterator[None]:
    """Ctrl-C, SIGTERM, SIGHUP and SIGQUIT wait for the end of this: a process that has just been
    started and that nobody knows yet could not be ended. What ignores them, or ends at once, stays
    so.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    noted: list[signal.Signals] = []
    handlers = {number: signal.getsignal(number) for number in STOPS}
    ours = {number: handler for number, handler in handlers.items() if callable(handler)}
    for number in ours:
        signal.signal(number, lambda told, frame: noted.append(signal.Signals(told)))
    try:
        yield
    finally:
        for number, handler in ours.items():
            signal.signal(number, handler)
    for number in noted[:1]:
        ours[number](number, None)
