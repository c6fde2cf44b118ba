"""The library in front of the real runtime, as Python sees it: latches and marks beside the log."""

from __future__ import annotations

import ctypes
import threading
from pathlib import Path

from racegate.interpose.device.guards import OPEN
from racegate.interpose.device.library import Library

_WORD = ctypes.c_uint64


Page = tuple[int, int, int]  # the first byte, one past the last, mode


class _Local(threading.local):
    """Of one thread. pages: to be closed when the call that the runtime is about to make returns,
    None outside of one.
    """

    def __init__(self) -> None:
        self.pages: list[Page] | None = None


class ForwardLibrary(Library):
    """The preloaded library of a real GPU.

    The runtime may touch the pages of a call until the call returns: they close then. Streams,
    latches and marks are handles: a latch holds a stream back, a mark says how far it got.
    """

    lands_at_once = False

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._local = _Local()
        self._library.fw_mark.restype = self._library.fw_launches.restype = _WORD
        self._library.fw_mark.argtypes = (_WORD,)
        for name in ("fw_latch_put", "fw_mark_done", "fw_mark_wait", "fw_stream_wait"):
            getattr(self._library, name).argtypes = (_WORD,)

    def guard(self, low: int, high: int, *, mode: int) -> bool:
        """As the virtual device's, but for what is closed within a call."""
        pages = self._local.pages
        if pages is None:
            return super().guard(low, high, mode=mode)
        if mode == OPEN:
            pages[:] = [page for page in pages if page[:2] != (low, high)]
            return super().guard(low, high, mode=mode)
        pages.append((low, high, mode))
        return True

    def begin_call(self) -> None:
        """This thread is about to make a call: its pages close when it returns."""
        self._local.pages = []

    def has_pages(self) -> bool:
        """Whether any page is to be closed when this thread's call returns."""
        return bool(self._local.pages)

    def end_call(self) -> int:
        """The call has returned: its pages close. Returns how many could not be closed."""
        pages, self._local.pages = self._local.pages, None
        return sum(not self.guard(low, high, mode=mode) for low, high, mode in pages or ())

    def inside(self, change: int) -> None:
        """This thread enters (1) or leaves (-1) an operator: its launches are the operator's."""
        self._library.fw_inside(ctypes.c_int(change))

    def launches(self) -> int:
        """How many kernels, copies and settings this thread has launched so far."""
        return int(self._library.fw_launches())

    def limit(self, seconds: float) -> None:
        """How long a latch may stand."""
        self._library.fw_limit(ctypes.c_double(seconds))

    def put(self, stream: int) -> int | None:
        """A closed latch for all that is put on the stream from now on; None if there is none."""
        latch = int(self._library.fw_latch_put(stream))
        return latch if latch >= 0 else None

    def open(self, latch: int) -> None:
        self._library.fw_latch_open(ctypes.c_int(latch))

    def has_expired(self, latch: int) -> bool:
        """Whether it stood too long and was opened by the watchdog."""
        return bool(self._library.fw_latch_expired(ctypes.c_int(latch)))

    def mark(self, stream: int) -> int:
        """Complete when all is that was put on the stream until now."""
        return int(self._library.fw_mark(stream))

    def is_complete(self, mark: int) -> bool:
        return bool(self._library.fw_mark_done(mark))

    def wait_mark(self, mark: int) -> None:
        """The host waits; the program gains no edge by it."""
        self._library.fw_mark_wait(mark)

    def wait_stream(self, stream: int) -> None:
        """The host waits for a stream; the program gains no edge by it."""
        self._library.fw_stream_wait(stream)
