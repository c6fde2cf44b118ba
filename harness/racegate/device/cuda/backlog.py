"""Backlog: what the device was given and the host has not waited for, under eager pacing.

Eagerly, every operation completes before the host goes on. Nobody can tell whether it did until an
operation of another stream follows, the stream is blocked or another one let go, or the host
touches the memory that it touches: only then the host waits, once for all that one stream was given
since the last time.
"""

from __future__ import annotations

from collections.abc import Sequence

from racegate.device.cuda.driver import CudaDriver, Handle
from racegate.history.trace import Access


class Backlog:
    """The last operations of one stream; the pending queues say that they have completed."""

    __slots__ = ("_cuda", "_event", "_storages", "_stream")

    def __init__(self, cuda: CudaDriver) -> None:
        self._cuda = cuda
        self._event = cuda.event()
        self._stream: Handle = None
        self._storages: set[int] = set()

    def add(self, stream: Handle, accesses: Sequence[Access]) -> None:
        """An operation that was put on a stream, and on no other since `wait_unless_on`."""
        self._stream = stream
        for access in accesses:
            self._storages.add(access.storage)

    def wait_unless_on(self, stream: Handle) -> None:
        """Before something is put on this stream, which keeps its own order."""
        if self._stream is not stream:
            self.wait()

    def wait_for(self, access: Access) -> None:
        """Before the host touches memory."""
        if access.storage in self._storages:
            self.wait()

    def wait(self) -> None:
        """Until all of it has completed."""
        if self._stream is None:
            return
        self._cuda.record(self._event, self._stream)
        self._cuda.synchronize(self._event)
        self._stream = None
        self._storages.clear()
