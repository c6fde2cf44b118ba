"""The native runtime as Python sees it: its log of calls, its one callback, its few answers."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from mmap import mmap
from pathlib import Path
from typing import ClassVar, NamedTuple

from racegate.order.ranges import Ranges


class Logged(IntEnum):
    """Calls that are only logged: native/virtual.h says why."""

    MALLOC = 1
    FREE = 2
    HOST_ALLOC = 3
    HOST_FREE = 4
    HOST_REGISTER = 5
    HOST_UNREGISTER = 6
    STREAM_CREATE = 7
    EVENT_RECORD = 8
    STREAM_WAIT = 9
    EVENT_DESTROY = 10
    QUERY_TRUE = 11
    CAPTURE_BEGIN = 12
    CAPTURE_END = 13
    FULL = 14
    UNMAP = 15


class CallKind(IntEnum):
    """Calls that ask Python."""

    COPY = 1
    SET = 2
    LAUNCH = 3
    EVENT_SYNC = 4
    STREAM_SYNC = 5
    DEVICE_SYNC = 6
    STREAM_QUERY = 7
    HOST_FUNCTION = 8
    GRAPH_LAUNCH = 9
    UNMODELLED = 10
    BAD_DEVICE = 11
    ISSUED = 12
    GRAPH_NODES = 13
    VALUE_WAIT = 14
    NCCL = 15
    NCCL_JOIN = 16
    NCCL_SPLIT = 17
    BATCH = 18
    OWNER = 19


class LogEntry(NamedTuple):
    """thread: as `Library.thread_number` gives it."""

    kind: int
    thread: int
    a: int
    b: int
    c: int
    d: int


class Touch(NamedTuple):
    """Bytes that code which reports nothing touched. page: their page as it was before, if the
    touch came by a fault, which knows its first byte only.
    """

    thread: int
    address: int
    size: int
    is_write: bool
    page: bytes | None


Handler = Callable[[int, int, int, int, int, bytes], int]

_WORD = ctypes.c_uint64
_CALLBACK = ctypes.CFUNCTYPE(_WORD, _WORD, _WORD, _WORD, _WORD, _WORD, ctypes.c_char_p)
_ROOM = 256
_FIELDS = 6
_PAGE = 4096
_LEFT, _FORKS = 2, 3  # of the news


_OWN, _OF_CHILDREN = 0, 1
_BYTES = 16  # of both counts


class GivenWork:
    """Operations, memory and accesses of pinned memory, counted: those of the process of the run,
    and those of processes that it forked, which are computed and not judged.
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Nothing is given yet: a run begins in this process."""
        self._counts = memoryview(mmap(-1, _BYTES)).cast("Q")  # shared with what is forked
        self._whose = _OWN

    def leave(self) -> None:
        """This is a forked child."""
        self._whose = _OF_CHILDREN

    def add(self) -> None:
        """One more."""
        self._counts[self._whose] += 1

    @property
    def own(self) -> int:
        """What the process of the run gave the device."""
        return self._counts[_OWN]

    @property
    def of_children(self) -> int:
        """What forked children gave it."""
        return self._counts[_OF_CHILDREN]


_SKIPPED = (CallKind.COPY, CallKind.SET, CallKind.LAUNCH, CallKind.HOST_FUNCTION)
_WAITS = (CallKind.EVENT_SYNC, CallKind.STREAM_SYNC, CallKind.DEVICE_SYNC)
_VALUE_BYTES_MAX = 16  # of a number or a size that torch reads back


class RuntimeCall(NamedTuple):
    """A call of the runtime. source: of a copy, else 0"""

    kind: int
    source: int

    @property
    def is_wait(self) -> bool:
        """Whether the host waits in it."""
        return self.kind in _WAITS


class RehearsedCode(threading.local):
    """Torch's own CUDA code runs in this thread, and what it asks of the runtime is noted instead
    of done. asked: since it began, None outside of one
    """

    asked: list[RuntimeCall] | None = None
    _kept: Ranges = ()

    @contextmanager
    def begin(self, kept: Ranges) -> Iterator[list[RuntimeCall]]:
        """kept: memory of the program, into which nothing may be written."""
        self.asked, self._kept = [], kept
        try:
            yield self.asked
        finally:
            self.asked = None

    def takes(self, kind: int, to: int, source: int, size: int) -> bool:
        """Notes a call; whether it was to do something, and so is done. What is read back is 0."""
        assert self.asked is not None
        self.asked.append(RuntimeCall(kind, source if kind == CallKind.COPY else 0))
        is_read_back = kind == CallKind.COPY and size <= _VALUE_BYTES_MAX
        if is_read_back and not any(low <= to < high for low, high in self._kept):
            ctypes.memset(to, 0, size)
        return kind in _SKIPPED


class Library:
    """The preloaded library. It must have been preloaded, or torch talks to another runtime.

    rehearsal: of the thread that asks
    news: its first word is not 0 if calls were logged or touches noted that nobody has taken in,
        its second if there are touches among them, its third in a process that the program forked
    lands_at_once: what is issued in a recorded run has run by then
    work: how much the program has given the device
    has_gpus: it sees several
    thread_number: of the calling thread, never another's; odd if autograd started it
    """

    lands_at_once: ClassVar[bool] = True

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))
        for name in ("vg_drain", "vg_event_version", "vg_capture_of"):
            getattr(self._library, name).restype = _WORD
        self._library.vg_drain.argtypes = [ctypes.c_void_p, _WORD]
        self._library.vg_capture_of.argtypes = [_WORD]
        self._library.vg_event_done.argtypes = [_WORD, _WORD]
        self._library.vg_guard.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]
        self._library.vg_news_address.restype = ctypes.c_void_p
        address = self._library.vg_news_address()
        self.news = memoryview((_WORD * 4).from_address(address)).cast("B").cast("Q")
        self.thread_number: Callable[[], int] = ctypes.PyDLL(str(path)).vg_thread
        self.thread_number.restype = _WORD
        self.work = GivenWork()
        self.has_gpus = False
        self._touch = (_WORD * 5)()
        self._page = ctypes.create_string_buffer(_PAGE)
        self._room = (_WORD * (_ROOM * _FIELDS))()
        self._callback: object = None
        self.rehearsal = RehearsedCode()

    def listen(self, handler: Handler) -> None:
        """All calls that ask Python go to the handler from now on, but for those of a rehearsal."""
        rehearsal = self.rehearsal

        def answer(kind: int, a: int, b: int, c: int, d: int, name: bytes) -> int:
            if rehearsal.asked is None or kind == CallKind.UNMODELLED:
                return handler(kind, a, b, c, d, name)
            return rehearsal.takes(kind, a, b, c)

        self._callback = _CALLBACK(answer)
        self._library.vg_set_callback(self._callback)

    def limit_memory(self, nbytes: int) -> None:
        """How much memory the virtual device has."""
        self._library.vg_limit_memory(ctypes.c_uint64(nbytes))

    def set_gpu(self, name: str, numbers: tuple[int, ...]) -> None:
        """What the virtual device says of itself. Its memory is that of `limit_memory`."""
        self._library.vg_set_gpu(name.encode(), (ctypes.c_int * len(numbers))(*numbers))

    def set_gpus(self, count: int) -> None:
        """How many the program sees."""
        self._library.vg_set_gpus(count)
        self.has_gpus = count > 1

    def take_asked(self) -> int:
        """The event that this thread was last told is not complete, once; 0: none."""
        take = self._library.vg_take_asked  # of the virtual runtime alone
        take.restype = _WORD
        return int(take())

    def hush(self) -> None:
        """No call asks Python any more: the interpreter ends."""
        self._library.vg_set_callback(None)

    def take_news(self) -> None:
        """What is there now will be taken in: what comes from here on is news again."""
        self.news[0] = 0

    def watch_forks(self) -> None:
        """Forks of this process are counted from now on."""
        self._library.vg_watch_forks()

    def forks(self) -> int:
        """How many there were."""
        return self.news[_FORKS]

    def has_left(self) -> bool:
        """Whether this is a process that the program forked, and nobody has asked before."""
        has_left, self.news[_LEFT] = self.news[_LEFT], 0
        return bool(has_left)

    def watch_pages(self) -> None:
        """Touches of guarded pages are noted from now on."""
        self._library.vg_guard_start()

    def guard(self, low: int, high: int, *, mode: int) -> bool:
        """Whole pages around [low, high). mode: 0 no access, 1 reads only, 2 open."""
        return bool(self._library.vg_guard(low, high, mode))

    def touches(self) -> Iterator[Touch]:
        """Touches noted since, oldest first."""
        self.news[1] = 0
        while self._library.vg_touch(self._touch, self._page):
            thread, address, size, is_write, has_page = self._touch
            page = self._page.raw if has_page else None
            yield Touch(thread, address, size, bool(is_write), page)

    def drain(self) -> Iterator[LogEntry]:
        """The calls logged since, oldest first."""
        count = _ROOM
        while count == _ROOM:
            count = self._library.vg_drain(self._room, _ROOM)
            words = iter(self._room[: count * _FIELDS])
            yield from map(LogEntry._make, zip(*[words] * _FIELDS, strict=True))

    def settle_event(self, event: int, version: int) -> None:
        """The allocators may be told that this record of the event is complete."""
        self._library.vg_event_done(event, version)

    def release(self, address: int, size: int) -> None:
        """Nothing pending uses the freed memory any more."""
        self._library.vg_release(ctypes.c_void_p(address), ctypes.c_size_t(size))

    def capture_of(self, stream: int) -> int:
        """Number of the graph that the stream is being captured into, 0 if none."""
        return int(self._library.vg_capture_of(stream))
