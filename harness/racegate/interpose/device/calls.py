"""Calls of the runtime become what they mean: copies, waits, allocations, or the end of the run."""

from __future__ import annotations

import ctypes
import traceback
from collections.abc import Callable
from functools import partial
from itertools import groupby
from threading import get_ident

from racegate.interpose.device.copies import Copy, CopyBatch, SourceOrder, sleep
from racegate.interpose.device.library import CallKind, Library, LogEntry, Logged
from racegate.interpose.device.session import Session
from racegate.interpose.device.spans import Place
from racegate.order.ranges import Ranges

FULL = "allocations that the virtual device had no room for (`--memory SIZE` gives it more)"
NCCL = (
    "NCCL: collectives between GPUs (`--gpus N` runs a program that joins in them itself, with so "
    "many GPUs, `--ranks N` starts it as so many ranks; the backend gloo works on the host)"
)
_OF_NCCL = (CallKind.NCCL, CallKind.NCCL_JOIN, CallKind.NCCL_SPLIT)
_BLOCKING = 1 << 63
_COPY, _SET, _EVENT_SYNC = int(CallKind.COPY), int(CallKind.SET), int(CallKind.EVENT_SYNC)
# (to the device, from the device): kind
_COPY_KINDS = {
    (True, True): "d2d", (True, False): "h2d", (False, True): "d2h", (False, False): "h2h",
}  # fmt: skip
AnswerNccl = Callable[[int, int, int, int, int, bytes], int]
VALUE_WAITS = "waits of a stream for a value in memory (taken as no order)"
UNMAPS = "memory taken out of its addresses beside other threads (taken as ordered)"
_EARLY = 1 << 62  # of the lane on which a stream's copies read their sources out of its order
_DONT_NEED = 4  # madvise(2)
_PAGE = 4096
_HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class LoggedRuntime:
    """The runtime with its log of calls, as a session needs it."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._news = library.news
        self._taking = 0  # the thread that tells what was logged
        self.guard = library.guard
        self.settle_event = library.settle_event
        self.thread_number = library.thread_number
        self.work = library.work

    @property
    def lands_at_once(self) -> bool:
        """Whether what is issued in a recorded run has run by then."""
        return self._library.lands_at_once

    def take_in(self, session: Session) -> None:
        """Tells the session what was logged since."""
        if not (self._news[0] or self._taking):
            return
        if self._library.has_left():
            self._taking = 0
            self._library.hush()
            session.leave()
        own = get_ident()
        if self._taking == own:
            return
        with session.lock:  # another thread may be about it: what it has read is not told yet
            self._taking = own
            try:
                self._tell(session)
            finally:
                self._taking = 0

    def _tell(self, session: Session) -> None:
        library = self._library
        library.take_news()
        if self._news[1]:
            for touch in library.touches():
                session.touches.touched(touch)
        for entry in library.drain():
            if entry.kind in (Logged.FREE, Logged.HOST_FREE):
                _freed(session, entry)
                library.release(entry.a, entry.b)
            else:
                _TAKING[entry.kind](session, entry)


def _freed(session: Session, entry: LogEntry) -> None:
    session.guards.drop(entry.a, entry.a + entry.b)
    session.queue.force_all()  # both ways to free wait for the device
    session.memory_removed(entry.a)


def _unregistered(session: Session, entry: LogEntry) -> None:
    session.queue.force_all()
    session.memory_removed(entry.a)


def _unmapped(session: Session, entry: LogEntry) -> None:
    """Memory is taken out of its addresses, behind the allocator's own lock: what threads did
    before it is not known to each other.
    """
    low, high = entry.a, entry.a + entry.b
    if session.host_threads.acting:
        session.not_seen[UNMAPS] += 1
    elif session.is_recording:
        stack = session.stack()
        label = session.recorder.label("unmap", stack)
        session.recorder.host(session.thread_lane(entry.thread), label, stack, (), ((low, high),))
    discard(low, high)


def discard(low: int, high: int) -> None:
    """What pages of memory hold is lost; who reads them gets zeros."""
    ctypes.CDLL(None).madvise(
        ctypes.c_void_p(low), ctypes.c_size_t(high - low & -_PAGE), _DONT_NEED
    )


def _recorded(session: Session, entry: LogEntry) -> None:
    if entry.d:
        session.graphs.record(entry.d, entry.a, entry.b)
    else:
        session.event_recorded(entry.a, entry.b, entry.c, entry.thread)


def _waited(session: Session, entry: LogEntry) -> None:
    if entry.d:
        session.graphs.wait(entry.d, entry.b, entry.a)
    else:
        session.stream_waits(entry.a, entry.b, entry.thread)


# What each kind of logged call means, but for memory that is freed.
_TAKING: dict[int, Callable[[Session, LogEntry], None]] = {
    Logged.MALLOC: lambda session, e: session.memory_added(e.a, e.b, Place.DEVICE),
    Logged.HOST_ALLOC: lambda session, e: session.memory_added(e.a, e.b, Place.PINNED),
    Logged.HOST_REGISTER: lambda session, e: session.memory_added(
        e.a, e.b, Place.PINNED, is_whole_pages=False
    ),
    Logged.HOST_UNREGISTER: _unregistered,
    Logged.STREAM_CREATE: lambda session, e: session.name_stream(
        e.a, is_blocking=not e.b & 1, gpu=e.c
    ),
    Logged.EVENT_RECORD: _recorded,
    Logged.STREAM_WAIT: _waited,
    Logged.EVENT_DESTROY: lambda session, e: session.event_destroyed(e.a),
    Logged.QUERY_TRUE: lambda session, e: session.found_complete(e.a, e.thread),
    Logged.FULL: lambda session, e: session.not_seen.update((FULL,)),
    Logged.UNMAP: _unmapped,
    Logged.CAPTURE_BEGIN: lambda session, e: session.graphs.begin(e.b),
    Logged.CAPTURE_END: lambda session, e: session.graphs.end(e.b),
}


class _Batch(ctypes.Structure):
    """Copies of one call, as native/copies.c has them."""

    _fields_ = (
        *((name, ctypes.POINTER(ctypes.c_uint64)) for name in ("to", "source", "sizes")),
        *((name, ctypes.c_uint64) for name in ("count", "stream", "order")),
    )


class Calls:
    """Listens to the library and tells the session.

    refuse: ends the run because something was asked that nobody modelled; it does not return
    """

    def __init__(self, library: Library, session: Session, refuse: Callable[[str], None]) -> None:
        self._library = library
        self._session = session
        self._refuse = refuse
        self._answer_nccl: AnswerNccl | None = None
        library.listen(self._called)
        session.drain()

    def join_ranks(self, answer: AnswerNccl) -> None:
        """This process is one of several ranks. answer: what a call of NCCL means to it"""
        self._answer_nccl = answer

    def _called(self, kind: int, a: int, b: int, c: int, d: int, name: bytes) -> int:
        is_done = False
        try:
            answer = self._answer(kind, a, b, c, d, name)
            is_done = True
            return answer
        finally:  # an error must not be lost in the C frame
            if not is_done:
                traceback.print_exc()
                self._refuse(f"{CallKind(kind).name} (the tool itself failed)")

    def _answer(self, kind: int, a: int, b: int, c: int, d: int, name: bytes) -> int:
        session = self._session
        if kind == _COPY:
            return self._copy(a, b, c, d & ~_BLOCKING, is_blocking=bool(d & _BLOCKING))
        if kind == _SET:
            return self._set(a, b, c, d)
        if kind == CallKind.BATCH:
            return self._batch(_Batch.from_address(a))
        if kind == CallKind.OWNER:
            return self._change_owner(a, b, d, is_given=bool(c))
        if kind == _EVENT_SYNC:
            session.wait_event(a)
        elif kind == CallKind.STREAM_SYNC:
            session.synchronize(a)
        elif kind == CallKind.DEVICE_SYNC:
            session.synchronize_gpu(a)
        elif kind == CallKind.STREAM_QUERY:
            return not session.query_stream(a)
        elif kind == CallKind.HOST_FUNCTION:
            function = _HOST_FUNCTION(b)
            session.issue("host function", a, (), (), lambda: self._call_back(a, function, c))
            return 1
        elif kind == CallKind.GRAPH_LAUNCH:
            self._session.graphs.launch(a, b)
        elif kind == CallKind.GRAPH_NODES:
            return self._session.graphs.size(a)
        elif kind == CallKind.LAUNCH and b"spin_kernel" in name:
            self._sleep(b)
            return 1
        elif kind in _OF_NCCL and self._answer_nccl is not None:
            return self._answer_nccl(kind, a, b, c, d, name)
        elif kind in _OF_NCCL:
            self._refuse(NCCL)
        elif kind == CallKind.VALUE_WAIT:
            session.not_seen[VALUE_WAITS] += 1
            self._sleep(a)
        elif kind == CallKind.BAD_DEVICE:
            session.not_seen["a GPU was asked for that is not there (`--gpus N` gives more)"] += 1
        else:
            self._refuse(_readable(name))
        return 0

    def _sleep(self, stream: int) -> None:
        """`torch.cuda._sleep`: an operation that takes long."""
        capture = self._library.capture_of(stream) if self._session.graphs.capturing else 0
        if not self._session.graphs.add(capture, "sleep", stream, (), (), sleep):
            self._session.issue("sleep", stream, (), (), sleep)

    def _call_back(self, stream: int, function: Callable[[int], None], data: int) -> None:
        """The body of a host function: the stream does what it touches."""
        session = self._session
        lane = session.recorder.lanes.of(session.thread_lane(), session.stream_lane(stream))
        with session.host_threads.on_stream(lane, session.drain):
            function(data)

    def _copy(self, to: int, source: int, size: int, stream: int, *, is_blocking: bool) -> int:
        session = self._session
        if session.is_own:
            return 0
        session.drain()
        to_place, source_place = session.spans.place(to), session.spans.place(source)
        reads: Ranges = ((source, source + size),) if source_place is not Place.PAGEABLE else ()
        writes: Ranges = ((to, to + size),) if to_place is not Place.PAGEABLE else ()
        kind = _COPY_KINDS[to_place is Place.DEVICE, source_place is Place.DEVICE]
        run = Copy(to, source, size)
        if source_place is Place.PAGEABLE:  # staged before the call returns
            keep = ctypes.create_string_buffer(ctypes.string_at(source, size), size)
            run = Copy(to, ctypes.addressof(keep), size, keep)
        session.guards.lift(to, to + size)
        session.guards.lift_to_read(source, source + size)
        if self._session.graphs.capturing:
            capture = self._library.capture_of(stream)
            if self._session.graphs.add(capture, kind, stream, reads, writes, run):
                return 1
        session.issue(kind, stream, reads, writes, run)
        both_device = to_place is source_place is Place.DEVICE
        if to_place is Place.PAGEABLE:
            session.synchronize(stream, by="the implicit wait of a copy to pageable memory")
        elif is_blocking and not both_device:
            session.wait_stream(stream)
        return 1

    def _batch(self, batch: _Batch) -> int:
        """Copies of one call, in as few operations as there are kinds of them."""
        parts = [batch.to[: batch.count], batch.source[: batch.count], batch.sizes[: batch.count]]
        copies = [Copy(*part) for part in zip(*parts, strict=True) if part[2]]
        return self.copy_many(copies, batch.stream, SourceOrder(batch.order))

    def copy_many(self, copies: list[Copy], stream: int, order: SourceOrder) -> int:
        """Copies on a stream. order: when they read their sources"""
        session = self._session
        if session.is_own:
            return 0
        session.drain()
        place = session.spans.place
        for (to, source), group in groupby(copies, lambda c: (place(c.to), place(c.source))):
            if Place.PAGEABLE in (to, source) or session.graphs.capturing:
                for one in group:
                    self._copy(one.to, one.source, one.size, stream, is_blocking=False)
            else:
                kind = _COPY_KINDS[to is Place.DEVICE, source is Place.DEVICE]
                self._copy_group(kind, CopyBatch(tuple(group)), stream, order)
        return 1

    def _copy_group(self, kind: str, batch: CopyBatch, stream: int, order: SourceOrder) -> None:
        """All of them are of one kind."""
        session = self._session
        for one in batch.copies:
            session.guards.lift(one.to, one.to + one.size)
            session.guards.lift_to_read(one.source, one.source + one.size)
        reads, writes = batch.reads, batch.writes
        if order is SourceOrder.DURING_CALL:
            session.host_access(f"source of {kind}", reads, ())
            stage, batch = batch.through_buffers()
            reads = ()
            stage()
        elif order is SourceOrder.ANY:
            reads, batch = (), self._read_early(kind, batch, stream)
        session.issue(kind, stream, reads, writes, batch)

    def _read_early(self, kind: str, batch: CopyBatch, stream: int) -> CopyBatch:
        """The sources are read out of the order of the stream, from the call on; what is read is
        written in its order.
        """
        session, early = self._session, stream | _EARLY
        stage, landing = batch.through_buffers()
        session.issue(f"source of {kind}", early, batch.reads, (), stage.__call__)
        with session.lock:
            thread, stack = session.thread_lane(), session.stack()
            recorder, lane = session.recorder, session.stream_lane(early)
            recorder.record(early, thread, lane, stack)
            recorder.make_wait(thread, session.stream_lane(stream), early, stack)
            recorder.forget(early)  # no event of the program
        return landing

    def _change_owner(self, memory: int, size: int, stream: int, *, is_given: bool) -> int:
        """Memory is handed out or given back in the order of a stream: nobody touches it before,
        nobody behind it.
        """
        session = self._session
        session.drain()
        if is_given:
            session.handed_out(memory, size, session.stack())
        work = None if is_given else partial(discard, memory, memory + size)
        kind = "allocation" if is_given else "free"
        session.issue(kind, stream, (), ((memory, memory + size),), work)
        return 1

    def _set(self, to: int, value: int, size: int, stream: int) -> int:
        session = self._session
        if session.is_own:
            return 0

        run = partial(ctypes.memset, to, value, size)
        writes = ((to, to + size),)
        session.guards.lift(to, to + size)
        capture = self._library.capture_of(stream)
        if not self._session.graphs.add(capture, "memset", stream, (), writes, run):
            session.issue("memset", stream, (), writes, run)
        return 1


def _readable(name: bytes) -> str:
    """A kernel's name as C++ has it."""
    if not name.startswith(b"_Z"):
        return name.decode()
    demangle = ctypes.CDLL("libstdc++.so.6")["__cxa_demangle"]  # which torch has loaded
    demangle.restype = ctypes.c_char_p
    return (demangle(name, None, None, None) or name).decode()
