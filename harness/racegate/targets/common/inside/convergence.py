"""Where a run under holds has become the run in which nothing is held: what follows is that one's.

What follows a turn of the engine's loop depends on the memory that the device reaches and on what
the host knows. The host knows what it was given, and what it got from the device: bytes that it
reads in pinned memory, copies to the host, single values and sizes. If nothing is held any more,
and all of these are the same before the same turn, the rest is the same.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Iterable
from functools import partial

from racegate.interpose.device.copies import Copy, CopyBatch
from racegate.interpose.device.queue import Work
from racegate.interpose.device.session import Session
from racegate.interpose.device.spans import Place, Span
from racegate.order.ranges import Ranges

PIECE = 1 << 16  # bytes that are compared at once
_ZEROS = bytes(PIECE)
_WHOLE = 1 << 64
_NEVER = 1 << 62  # no wait of the host covers an operation of this number
_DONT_NEED = 4  # madvise(2)
_madvise = ctypes.CDLL(None).madvise
_madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]


class Converged(Exception):
    """The run has become the one without holds."""


class Heard:
    """What the host got from the device so far.

    A copy into pinned memory closes the pages that it wrote: who reads them says so, or is noticed.
    Copies that close none count by themselves, without their order, which is that of landing.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._in_order = 0
        self._landed = 0

    @property
    def digest(self) -> tuple[int, int, int]:
        return self._in_order, self._landed, self._session.touches.raw_reads

    def touches(self, reads: Ranges, writes: Ranges) -> None:
        """The host is about to touch these bytes, and has said so."""
        for low, high in (*reads, *writes):
            self._session.guards.lift(low, high)
        for low, high in reads:
            self.learns(ctypes.string_at(low, high - low))

    def learns(self, value: object) -> None:
        """The host has a value from the device."""
        self._in_order = _number(self._in_order, value)

    def following(self, kind: str, run: Work) -> Work:
        """The work of an operation, with what the host gets by it."""
        if kind == "host function":
            self.learns(os.getpid())  # whatever it does: no other run has heard the same
        if isinstance(run, CopyBatch):
            return partial(self._copy_all, run)
        return partial(self._copy, run) if isinstance(run, Copy) else run

    def _copy_all(self, batch: CopyBatch) -> None:
        for copy in batch.copies:
            self._copy(copy)

    def _copy(self, copy: Copy) -> None:
        guards, low, high = self._session.guards, copy.to, copy.to + copy.size
        guards.lift(low, high)
        guards.lift_to_read(copy.source, copy.source + copy.size)
        copy()
        span = self._session.spans.find(low)
        if span is not None and span.place is Place.DEVICE:
            return
        is_whole = span is not None and span.first_page <= low and high <= span.last_page
        if is_whole and guards.close(low, high, 0, _NEVER, is_write=True):
            return
        landed = ctypes.string_at(low, copy.size)
        self._landed = (self._landed + _number(copy.size, landed)) % _WHOLE


def _number(*values: object) -> int:
    digest = hashlib.blake2b(repr(values).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")


class Memory:
    """All that the device reaches, by what has changed since the engine was started. Most of it is
    zeros: they need no copy, and all of them stand in one page, which the processor has at hand.
    """

    def __init__(self, spans: Iterable[Span]) -> None:
        self._first = {(span.base, span.end): _pieces(span) for span in spans}
        self.digest(spans)  # reads what was given back, which maps it for forked processes too

    def digest(self, spans: Iterable[Span]) -> bytes:
        """Of contents and places: what differs from the beginning, in pieces."""
        found = hashlib.blake2b(digest_size=16)
        for span in spans:
            first = self._first.get((span.base, span.end))
            found.update(repr((span.base, span.end, span.place)).encode())
            for index, low in enumerate(range(span.base, span.end, PIECE)):
                size = min(PIECE, span.end - low)
                if first is None or _memcmp(low, first[index], size):
                    found.update(low.to_bytes(8, "big"))
                    found.update(ctypes.string_at(low, size))
        return found.digest()


def _pieces(span: Span) -> list[bytes]:
    """What it holds. Zeros on the device are given back, and zeros again when they are read: our
    runtime maps its memory for this process alone, with no file behind it.
    """
    pieces = []
    for low in range(span.base, span.end, PIECE):
        size = min(PIECE, span.end - low)
        is_zero = not _memcmp(low, _ZEROS, size)
        pieces.append(_ZEROS if is_zero else ctypes.string_at(low, size))
        if is_zero and size == PIECE and span.place is Place.DEVICE:
            _madvise(low, size, _DONT_NEED)
    return pieces
