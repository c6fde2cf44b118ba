"""A limit of time for work in this process: an alarm, which costs nothing until it rings."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from racegate.scenario.errors import BrokenHarnessError

# For one scenario; 0 is no limit.
TIMEOUT_S = 900.0


class TimeLimitError(BrokenHarnessError):
    """Work that did not end in its time: says which, and how to give it more."""


@contextmanager
def limited_time(seconds: float, doing: str) -> Iterator[Callable[[], None]]:
    """Inside, this thread is interrupted after so many seconds; 0 is no limit. Only the main thread
    can be, and only where there are alarms. What it is given begins them anew: a sign of life.

    Raises TimeLimitError.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not seconds or not is_main or not hasattr(signal, "setitimer"):
        yield lambda: None
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise TimeLimitError(
            f"{doing} did not end within {seconds:g} s; --timeout gives it more, or 0 no limit"
        )

    def begin() -> None:
        signal.setitimer(signal.ITIMER_REAL, seconds)

    before = signal.signal(signal.SIGALRM, ring)
    begin()
    try:
        yield begin
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
