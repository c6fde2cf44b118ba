"""Calls of the runtime become what they mean: copies, waits, allocations, or the end of the run."""

from __future__ import annotations

import ctypes
import traceback
from collections.abc import Callable
from functools import partial

from racegate.interpose.device.copies import Copy
from racegate.interpose.device.graphs import Graphs
from racegate.interpose.device.library import CallKind, Library, LogEntry, Logged
from racegate.interpose.device.session import Session
from racegate.interpose.device.spans import Place
from racegate.order.ranges import Ranges

_BLOCKING = 1 << 63
_COPY, _SET, _EVENT_SYNC = int(CallKind.COPY), int(CallKind.SET), int(CallKind.EVENT_SYNC)
# (to the device, from the device): kind
_COPY_KINDS = {
    (True, True): "d2d", (True, False): "h2d", (False, True): "d2h", (False, False): "h2h",
}  # fmt: skip
_HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Calls:
    """Listens to the library and tells the session.

    refuse: ends the run because something was asked that nobody modelled; it does not return
    """

    def __init__(
        self, library: Library, session: Session, graphs: Graphs, refuse: Callable[[str], None]
    ) -> None:
        self._library = library
        self._news = library.news
        self._session = session
        self._graphs = graphs
        self._refuse = refuse
        self._taking = self._takers()
        session.drain = self.drain
        session.guards.set_pages = library.guard
        session.settle = library.settle_event
        library.listen(self._called)
        self.drain()

    def drain(self) -> None:
        """Takes in the logged calls: always before anything else is judged."""
        if not self._news[0]:
            return
        library = self._library
        with self._session.lock:
            library.take_news()
            if self._news[1]:
                for touch in library.touches():
                    self._session.touches.touched(touch)
            for entry in library.drain():
                self._taking[entry.kind](entry)

    def _takers(self) -> dict[int, Callable[[LogEntry], None]]:
        """What each kind of logged call means."""
        return {
            Logged.MALLOC: lambda e: self._session.memory_added(e.a, e.b, Place.DEVICE),
            Logged.FREE: self._freed,
            Logged.HOST_ALLOC: lambda e: self._session.memory_added(e.a, e.b, Place.PINNED),
            Logged.HOST_FREE: self._freed,
            Logged.HOST_REGISTER: lambda e: self._session.memory_added(
                e.a, e.b, Place.PINNED, is_whole_pages=False
            ),
            Logged.HOST_UNREGISTER: self._unregistered,
            Logged.STREAM_CREATE: lambda e: self._session.name_stream(e.a, is_blocking=not e.b & 1),
            Logged.EVENT_RECORD: self._recorded,
            Logged.STREAM_WAIT: self._waited,
            Logged.EVENT_DESTROY: lambda e: self._session.event_destroyed(e.a),
            Logged.QUERY_TRUE: lambda e: self._session.found_complete(e.a, e.thread),
            Logged.CAPTURE_BEGIN: lambda e: self._graphs.begin(e.b),
            Logged.CAPTURE_END: lambda e: self._graphs.end(e.b),
        }

    def _freed(self, entry: LogEntry) -> None:
        session = self._session
        session.guards.drop(entry.a, entry.a + entry.b)
        session.queue.force_all()  # both ways to free wait for the device
        session.memory_removed(entry.a)
        self._library.release(entry.a, entry.b)

    def _unregistered(self, entry: LogEntry) -> None:
        self._session.queue.force_all()
        self._session.memory_removed(entry.a)

    def _recorded(self, entry: LogEntry) -> None:
        if entry.d:
            self._graphs.record(entry.d, entry.a, entry.b)
        else:
            self._session.event_recorded(entry.a, entry.b, entry.c, entry.thread)

    def _waited(self, entry: LogEntry) -> None:
        if entry.d:
            self._graphs.wait(entry.d, entry.b, entry.a)
        else:
            self._session.stream_waits(entry.a, entry.b, entry.thread)

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
        if kind == _EVENT_SYNC:
            session.wait_event(a)
        elif kind == CallKind.STREAM_SYNC:
            session.wait_stream(a)
        elif kind == CallKind.DEVICE_SYNC:
            session.wait_device()
        elif kind == CallKind.STREAM_QUERY:
            return not session.query_stream(a)
        elif kind == CallKind.HOST_FUNCTION:
            function = _HOST_FUNCTION(b)
            session.issue("host function", a, (), (), lambda: function(c))
            return 1
        elif kind == CallKind.GRAPH_LAUNCH:
            self._graphs.launch(a, b)
        elif kind == CallKind.BAD_DEVICE:
            session.not_seen["a second GPU was asked for (the virtual machine has one)"] += 1
        else:
            self._refuse(name.decode())
        return 0

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
        if self._graphs.capturing:
            capture = self._library.capture_of(stream)
            if self._graphs.add(capture, kind, stream, reads, writes, run):
                return 1
        session.issue(kind, stream, reads, writes, run)
        both_device = to_place is source_place is Place.DEVICE
        if to_place is Place.PAGEABLE or (is_blocking and not both_device):
            session.wait_stream(stream)
        return 1

    def _set(self, to: int, value: int, size: int, stream: int) -> int:
        session = self._session
        if session.is_own:
            return 0

        run = partial(ctypes.memset, to, value, size)
        writes = ((to, to + size),)
        session.guards.lift(to, to + size)
        capture = self._library.capture_of(stream)
        if not self._graphs.add(capture, "memset", stream, (), writes, run):
            session.issue("memset", stream, (), writes, run)
        return 1
