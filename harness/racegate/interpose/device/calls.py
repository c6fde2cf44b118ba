"""Calls of the runtime become what they mean: copies, waits, allocations, or the end of the run."""

from __future__ import annotations

import ctypes
import traceback
from collections.abc import Callable

from racegate.interpose.device.graphs import Graphs
from racegate.interpose.device.library import Call, Library, LogEntry, Logged
from racegate.interpose.device.session import Session
from racegate.interpose.device.spans import Place
from racegate.interpose.order.ranges import Ranges

_BLOCKING = 1 << 63
_HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Calls:
    """Listens to the library and tells the session.

    refuse: ends the run because something was asked that nobody modelled; it does not return
    """

    def __init__(
        self, library: Library, session: Session, graphs: Graphs, refuse: Callable[[str], None]
    ) -> None:
        self._library = library
        self._session = session
        self._graphs = graphs
        self._refuse = refuse
        self.bad_devices: list[int] = []
        session.drain = self.drain
        session.guards.set_pages = library.guard
        session.settle = library.settle_event
        library.listen(self._called)
        self.drain()

    def drain(self) -> None:
        """Takes in the logged calls: always before anything else is judged."""
        for thread, address, is_write in self._library.touches():
            self._session.touched(thread, address, is_write=is_write)
        if not self._library.has_entries():
            return
        with self._session.lock:
            while self._library.has_entries():
                for entry in self._library.drain():
                    self._logged(entry)

    def _logged(self, entry: LogEntry) -> None:
        session = self._session
        kind = entry.kind
        if kind == Logged.EVENT_RECORD and entry.d:
            self._graphs.record(entry.d, entry.a, entry.b, entry.thread)
        elif kind == Logged.STREAM_WAIT and entry.d:
            self._graphs.wait(entry.d, entry.b, entry.a)
        elif kind == Logged.EVENT_RECORD:
            session.event_recorded(entry.a, entry.b, entry.c, entry.thread)
        elif kind == Logged.STREAM_WAIT:
            session.stream_waits(entry.a, entry.b)
        elif kind == Logged.EVENT_DESTROY:
            session.event_destroyed(entry.a)
        elif kind == Logged.QUERY_TRUE:
            session.recorder.wait(session.thread_lane(entry.thread), entry.a, session.stack())
        elif kind == Logged.MALLOC:
            session.memory_added(entry.a, entry.b, Place.DEVICE)
        elif kind in (Logged.HOST_ALLOC, Logged.HOST_REGISTER):
            whole = kind == Logged.HOST_ALLOC
            session.memory_added(entry.a, entry.b, Place.PINNED, is_whole_pages=whole)
        elif kind in (Logged.FREE, Logged.HOST_FREE):
            session.guards.open(entry.a, entry.a + entry.b)
            session.queue.force_all()  # both wait for the device
            session.memory_removed(entry.a)
            self._library.release(entry.a, entry.b)
        elif kind == Logged.HOST_UNREGISTER:
            session.queue.force_all()
            session.memory_removed(entry.a)
        elif kind == Logged.STREAM_CREATE:
            session.name_stream(entry.a, is_blocking=not entry.b & 1)
        elif kind == Logged.CAPTURE_BEGIN:
            self._graphs.begin(entry.b)
        elif kind == Logged.CAPTURE_END:
            self._graphs.end(entry.b)

    def _called(self, kind: int, a: int, b: int, c: int, d: int, name: bytes) -> int:
        is_done = False
        try:
            answer = self._answer(kind, a, b, c, d, name)
            is_done = True
            return answer
        finally:  # an error must not be lost in the C frame
            if not is_done:
                traceback.print_exc()
                self._refuse(f"{Call(kind).name} (the tool itself failed)")

    def _answer(self, kind: int, a: int, b: int, c: int, d: int, name: bytes) -> int:
        session = self._session
        if kind == Call.COPY:
            return self._copy(a, b, c, d & ~_BLOCKING, is_blocking=bool(d & _BLOCKING))
        if kind == Call.SET:
            return self._set(a, b, c, d)
        if kind == Call.EVENT_SYNC:
            session.wait_event(a)
        elif kind == Call.STREAM_SYNC:
            session.wait_stream(a)
        elif kind == Call.DEVICE_SYNC:
            session.wait_device()
        elif kind == Call.STREAM_QUERY:
            return not session.query_stream(a)
        elif kind == Call.HOST_FUNCTION:
            function = _HOST_FUNCTION(b)
            session.issue("host function", a, (), (), lambda: function(c))
            return 1
        elif kind == Call.GRAPH_LAUNCH:
            self._graphs.launch(a, b)
        elif kind == Call.BAD_DEVICE:
            self.bad_devices.append(a)
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
        kind = _copy_kind(to_place, source_place)
        staged = source
        keep = None
        if source_place is Place.PAGEABLE:  # staged before the call returns
            keep = ctypes.create_string_buffer(ctypes.string_at(source, size), size)
            staged = ctypes.addressof(keep)

        def run(keep: object = keep) -> None:
            ctypes.memmove(to, staged, size)

        session.guards.open(to, to + size)
        session.guards.open(source, source + size)
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

        def run() -> None:
            ctypes.memset(to, value, size)

        writes = ((to, to + size),)
        capture = self._library.capture_of(stream)
        if not self._graphs.add(capture, "memset", stream, (), writes, run):
            session.issue("memset", stream, (), writes, run)
        return 1


def _copy_kind(to: Place, source: Place) -> str:
    if to is Place.DEVICE:
        return "d2d" if source is Place.DEVICE else "h2d"
    return "d2h" if source is Place.DEVICE else "h2h"
