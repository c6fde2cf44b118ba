"""Calls that the real runtime is about to make become what they mean; the runtime makes them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

from racegate.interpose.device.calls import Calls
from racegate.interpose.device.library import CallKind
from racegate.interpose.device.session import Session
from racegate.interpose.device.spans import Place
from racegate.interpose.device.touches import RAW_READS, RAW_WRITES
from racegate.interpose.gpu.forward import ForwardLibrary
from racegate.interpose.kernels.waiting import WaitReach
from racegate.order.ranges import Ranges

_BLOCKING = 1 << 63
_IDLING = "spin_kernel"  # torch.cuda._sleep: it touches nothing


class InsideWork(NamedTuple):
    """What an operator did besides its kernels. waited: streams that the host waited for, and what
    it knows of each to be complete; copied: bytes of the host that copies read or wrote
    """

    waited: dict[int, WaitReach]
    copied: Ranges


class _Local(threading.local):
    """Of one thread. waited: streams that the inside of an operator waited for, and how many
    launches there had been; copied: bytes of the host in copies inside it
    """

    def __init__(self) -> None:
        self.waited: dict[int, int] = {}
        self.copied: list[tuple[int, int]] = []


class GpuCalls(Calls):
    """Listens to the library in front of the real runtime.

    A call that asks Python answers 1 if `issued` has to follow when the runtime has made it.
    """

    def __init__(
        self,
        library: ForwardLibrary,
        session: Session,
        refuse: Callable[[str], None],
    ) -> None:
        self._forward = library
        self._local = _Local()
        super().__init__(library, session, refuse)

    def refuse(self, what: str) -> None:
        """Ends the run: nobody modelled what the program asked for."""
        self._refuse(what)

    def take_inside(self) -> InsideWork:
        """What this thread's own work has done since."""
        local, launches = self._local, self._forward.launches()
        waited = {
            stream: WaitReach.BEFORE if launches > count else WaitReach.ITSELF
            for stream, count in local.waited.items()
        }
        copied = tuple(local.copied)
        local.waited, local.copied = {}, []
        return InsideWork(waited, copied)

    def _answer(self, kind: int, a: int, b: int, c: int, d: int, name: bytes) -> int:
        session = self._session
        if session.is_own:
            return self._own(kind, a, b, c, d)
        if kind == CallKind.COPY:
            return self._copied(a, b, c, d & ~_BLOCKING, is_blocking=bool(d & _BLOCKING))
        if kind == CallKind.SET:
            return self._launched("memset", d, (), ((a, a + c),))
        if kind == CallKind.HOST_FUNCTION:
            return self._launched("host function", a, (), ())
        if kind == CallKind.LAUNCH:
            return _IDLING not in name.decode()
        if kind == CallKind.ISSUED:
            self._issued()
            return 0
        answer = super()._answer(kind, a, b, c, d, name)
        return not session.queue.is_eager if kind == CallKind.GRAPH_LAUNCH else answer

    def _own(self, kind: int, a: int, b: int, c: int, d: int) -> int:
        """The inside of an operator: its waits concern the program and the latches, and what it
        copies from and to the host.
        """
        if kind == CallKind.COPY:
            self._local.copied += [(low, low + c) for low in (a, b)]
            for low in (a, b):
                self._session.guards.lift(low, low + c)
        if kind == CallKind.STREAM_SYNC:
            self._waits_for(a)
        elif kind == CallKind.COPY and self._session.spans.place(a) is Place.PAGEABLE:
            self._waits_for(d & ~_BLOCKING)
        elif kind == CallKind.DEVICE_SYNC:
            self._session.queue.force_all()
        return 0

    def _waits_for(self, stream: int) -> None:
        session = self._session
        if session.is_over:
            return
        self._local.waited[stream] = self._forward.launches()
        session.force_stream(stream)

    def _copied(self, to: int, source: int, size: int, stream: int, *, is_blocking: bool) -> int:
        session = self._session
        session.drain()
        to_place, source_place = session.spans.place(to), session.spans.place(source)
        reads: Ranges = ((source, source + size),) if source_place is not Place.PAGEABLE else ()
        writes: Ranges = ((to, to + size),) if to_place is not Place.PAGEABLE else ()
        session.guards.lift(to, to + size)
        session.guards.lift(source, source + size)
        follows = self._launched(
            f"{_letter(source_place)}2{_letter(to_place)}", stream, reads, writes
        )
        both_device = to_place is source_place is Place.DEVICE
        if to_place is Place.PAGEABLE or (is_blocking and not both_device):
            session.wait_stream(stream)
        return follows

    def _launched(self, kind: str, stream: int, reads: Ranges, writes: Ranges) -> int:
        capture = self._library.capture_of(stream)
        if self._session.graphs.add(capture, kind, stream, reads, writes, _nothing):
            return 0
        self._forward.begin_call()
        self._session.issue(kind, stream, reads, writes, _nothing)
        if self._forward.has_pages() or not self._session.queue.is_eager:
            return 1
        self._forward.end_call()
        return 0

    def _issued(self) -> None:
        unclosed = self._forward.end_call()
        if unclosed:
            self._session.not_seen[RAW_READS] += unclosed
            self._session.not_seen[RAW_WRITES] += unclosed
        self._session.queue.issued()


def _letter(place: Place) -> str:
    return "d" if place is Place.DEVICE else "h"


def _nothing() -> None:
    """The real runtime does it."""
