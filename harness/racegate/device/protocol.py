"""What the engine may ask of a device, and the types it may name. The virtual and the CUDA device
both give it, with one meaning; what they do alike is done here.

Streams are first in, first out; a wait binds to the latest record of the event at the time of the
call; waiting for a never-recorded event does nothing; an operation reads its inputs when it runs,
not when it is issued; what it did not declare it does not get.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

import numpy as np
from numpy.typing import DTypeLike

from racegate.device.launches import Graph, Kernel, Launch
from racegate.device.memory import Buffer, DeviceBuffer, HostBuffer, Rows
from racegate.device.nodes import Event, Flag, Stream
from racegate.device.pending import DeadlockError, PendingQueues
from racegate.device.recorder import Version
from racegate.device.uses import FootprintError, RowMask, Use, reads, updates, writes
from racegate.history.edge import Edge
from racegate.history.trace import Trace
from racegate_kernels.numerics import Array
from racegate_kernels.poison import poison_of

__all__ = [
    "DeadlockError",
    "Device",
    "DeviceBuffer",
    "Event",
    "Flag",
    "FootprintError",
    "Graph",
    "HostBuffer",
    "Kernel",
    "RowMask",
    "Rows",
    "Snapshot",
    "Stream",
    "Use",
    "Version",
    "reads",
    "updates",
    "writes",
]


class Snapshot(Protocol):
    """Copies of device memory taken in stream order."""

    @property
    def is_done(self) -> bool:
        """Whether the stream got there; true once the device has finished."""
        ...

    @property
    def is_readable(self) -> bool:
        """Whether arrays() may be asked for before the device has finished."""
        ...

    def arrays(self) -> list[np.ndarray]:
        """One per part that was asked for."""
        ...


class Ordering(Protocol):
    """What orders the operations of a device: the pending queues, and on CUDA real streams too."""

    def record(self, stream: Stream, event: Event) -> None: ...

    def wait_stream(self, stream: Stream, event: Event, edge: Edge, *, step: int) -> object: ...

    def wait_host(self, event: Event, edge: Edge, *, step: int) -> object: ...

    def wait_flag(self, stream: Stream, flag: Flag) -> None: ...

    def finish(self) -> Trace: ...

    def trace(self) -> Trace: ...


class Device(ABC):
    """Handles (streams, events, flags, buffers) go back only to the device that made them.

    lanes: the names of its streams; queues: the program's operations that have not happened
    order: what orders them
    """

    def __init__(self, lanes: tuple[str, ...], queues: PendingQueues, order: Ordering) -> None:
        self.lanes = lanes
        self.recorder = queues.recorder
        self._queues = queues
        self._order = order
        self._capturing: Graph | None = None

    def stream(self, lane: str) -> Stream:
        """The stream of that name."""
        return self._queues.stream(lane)

    @abstractmethod
    def event(self, name: str) -> Event:
        """An event that has not been recorded."""

    @abstractmethod
    def flag(self, name: str) -> Flag:
        """A flag that has not been set."""

    @abstractmethod
    def device_buffer(
        self, name: str, shape: tuple[int, ...], dtype: DTypeLike, *, stream: Stream
    ) -> DeviceBuffer:
        """Uninitialised (poisoned) device memory from the stream's pool; reuse is ordered on that
        stream only.
        """

    @abstractmethod
    def constant(self, name: str, values: np.ndarray) -> DeviceBuffer:
        """Device memory that is never written again (weights, tables)."""

    @abstractmethod
    def host_buffer(self, name: str, shape: tuple[int, ...], dtype: DTypeLike) -> HostBuffer:
        """Uninitialised (poisoned) pinned host memory."""

    @abstractmethod
    def mapped(self, buffer: HostBuffer) -> DeviceBuffer:
        """Pinned memory as kernels have it: they read it when they run, and no copy comes before
        it.
        """

    @abstractmethod
    def free(self, buffer: DeviceBuffer, *, step: int) -> None:
        """Gives device memory back to its stream's pool: poison from here on, in that stream's
        order.
        """

    def free_host(self, buffer: HostBuffer) -> None:
        """Gives pinned memory back: poison at once. The caller has waited for every copy that uses
        it.
        """
        buffer.write(np.full(buffer.shape, poison_of(buffer.dtype)))
        buffer.end()

    @abstractmethod
    def _fixed(self, constant: DeviceBuffer) -> Array:
        """A constant as kernels have it."""

    @abstractmethod
    def _launch(self, stream: Stream, launch: Launch, name: str, step: int) -> None:
        """Issues a launch that is not captured."""

    @abstractmethod
    def _copy(
        self, stream: Stream, name: str, target: Buffer, source: Buffer, step: int, rows: int
    ) -> None:
        """Issues a copy of the first rows, with their owners."""

    @abstractmethod
    def _copy_blocks(
        self,
        stream: Stream,
        name: str,
        target: Buffer,
        source: Buffer,
        step: int,
        into: Sequence[int],
        out_of: Sequence[int],
    ) -> None:
        """Issues a copy of row out_of[i] of the source to row into[i] of the target, without
        owners.
        """

    def launch(
        self,
        stream: Stream,
        kernel: Kernel,
        name: str,
        *,
        step: int,
        uses: Sequence[Use],
        constants: Sequence[DeviceBuffer] = (),
        **scalars: object,
    ) -> None:
        """Issues kernel(backend, *views, *constants, **scalars), one view per use, in order."""
        name = f"{name}{stream.suffix}"
        launch = Launch(kernel, name, uses, [self._fixed(one) for one in constants], scalars)
        if self._capturing is not None:
            self._capturing.add(stream.lane, launch)
            return
        self._launch(stream, launch, f"kernel:{name}@{step}", step)

    @contextmanager
    def capture(self, stream: Stream, name: str) -> Iterator[Graph]:
        """Yields a Graph in which the launches inside are recorded instead of issued.

        Only launches to `stream` can be captured, none with owners (they belong to a step) and
        none that lives shorter than the graph.
        """
        assert self._capturing is None, "captures do not nest"
        graph = self._capturing = Graph(name, stream.lane)
        try:
            yield graph
        finally:
            self._capturing = None
        graph.handle = self._captured(graph)

    def _captured(self, graph: Graph) -> object:
        """What the device replays in the place of the launches, if it has such a thing."""
        return None

    @abstractmethod
    def replay(self, stream: Stream, graph: Graph, *, step: int, masks: Mapping[str, int]) -> None:
        """Issues a graph as one operation `graph:NAME@step`, whose footprint is the union of the
        captured ones. masks: the rows that captured footprints name.
        """

    def upload(
        self, stream: Stream, target: DeviceBuffer, source: HostBuffer, *, step: int, rows: int
    ) -> None:
        """Non-blocking host-to-device copy of the first rows; reads the source when it runs."""
        name = target.name.removesuffix("_gpu")
        self._copy(stream, f"h2d:{name}{stream.suffix}@{step}", target, source, step, rows)

    def download(
        self,
        stream: Stream,
        target: HostBuffer,
        source: DeviceBuffer,
        name: str,
        *,
        step: int,
        rows: int,
    ) -> None:
        """Non-blocking device-to-host copy of the first rows."""
        name = f"d2h:{name}{stream.suffix}@{step}"
        self._copy(stream, name, target, source, step, rows)

    def upload_blocks(
        self,
        stream: Stream,
        target: DeviceBuffer,
        source: HostBuffer,
        name: str,
        *,
        step: int,
        blocks: Sequence[int],
    ) -> None:
        """Non-blocking copy of the source's first rows to the given blocks of a pool."""
        rows, name = range(len(blocks)), f"h2d:{name}{stream.suffix}@{step}"
        self._copy_blocks(stream, name, target, source, step, blocks, rows)

    def download_blocks(
        self,
        stream: Stream,
        target: HostBuffer,
        source: DeviceBuffer,
        name: str,
        *,
        step: int,
        blocks: Sequence[int],
    ) -> None:
        """Non-blocking copy of the given blocks of a pool to the target's first rows."""
        rows, name = range(len(blocks)), f"d2h:{name}{stream.suffix}@{step}"
        self._copy_blocks(stream, name, target, source, step, rows, blocks)

    def record(self, stream: Stream, event: Event) -> None:
        """A new record of the event, complete when the stream gets there."""
        self._order.record(stream, event)

    def wait_stream(self, stream: Stream, event: Event, edge: Edge, *, step: int) -> None:
        """Work issued to `stream` from now on starts after the latest record of `event`."""
        self._order.wait_stream(stream, event, edge, step=step)

    def wait_host(self, event: Event, edge: Edge, *, step: int) -> None:
        """Blocks the host until the latest record of `event` is complete. Raises DeadlockError."""
        self._order.wait_host(event, edge, step=step)

    def wait_flag(self, stream: Stream, flag: Flag) -> None:
        """Work issued to `stream` from now on starts after the flag is set."""
        self._order.wait_flag(stream, flag)

    @abstractmethod
    def query(self, event: Event, *, step: int) -> bool:
        """Whether the latest record of `event` is complete, without waiting."""

    def mark(self, alias: str, *, step: int) -> None:
        """Holds may name this step `@alias`."""
        self._queues.mark(alias, step=step)

    def action(self, name: str, *, step: int) -> AbstractContextManager[None]:
        """A host action: names the accesses inside, and is a point for holds when it ends."""
        return self._queues.action(name, step=step)

    @abstractmethod
    def snapshot(self, stream: Stream, parts: Sequence[tuple[DeviceBuffer, Rows]]) -> Snapshot:
        """Copies of buffers (all rows, the first n, or the given rows) in stream order; not part of
        the program.
        """

    def pending(self) -> tuple[str, ...]:
        """Names of the operations that were issued and have not happened."""
        return self._queues.pending()

    def finish(self) -> Trace:
        """Completes everything that is pending and returns the trace."""
        return self._order.finish()

    def trace(self) -> Trace:
        """What has been recorded so far; on CUDA a hold is realised if its evidence says so too."""
        return self._order.trace()


class MeetingDevice(Device):
    """The device of several ranks, on which their streams meet; one host at a time has its turn.
    Lanes end with the rank: `compute.rank1`.
    """

    @abstractmethod
    def meeting_place(
        self, name: str, shape: tuple[int, ...], dtype: DTypeLike, edge: Edge
    ) -> DeviceBuffer:
        """Memory that all ranks use. edge: orders what they do there"""

    def turn(self, rank: int) -> None:
        """What the host does from now on is done by this rank's."""
        self.recorder.turn(rank)

    def arrive(self, stream: Stream, arrival: Version) -> None:
        """The stream's part in a meeting: complete when the stream gets there."""
        self._queues.arrive(stream, arrival)

    def wait_arrival(self, stream: Stream, arrival: Version, edge: Edge, *, step: int) -> None:
        """Work issued to `stream` from now on starts behind another stream's part, which may not
        have been issued yet. A wait that nothing can end raises DeadlockError, where it is forced.
        """
        self._queues.wait_arrival(stream, arrival, edge, step=step)
