"""What the engine may ask of a device, and the types it may name. The virtual and the CUDA device
both give it, with one meaning.

Streams are first in, first out; a wait binds to the latest record of the event at the time of the
call; waiting for a never-recorded event does nothing; an operation reads its inputs when it runs,
not when it is issued; what it did not declare it does not get.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np
from numpy.typing import DTypeLike

from racegate.device.launches import Graph, Kernel
from racegate.device.memory import DeviceBuffer, HostBuffer, Rows
from racegate.device.nodes import Event, Flag, Stream
from racegate.device.pending import DeadlockError
from racegate.device.recorder import Version
from racegate.device.uses import FootprintError, RowMask, Use, reads, updates, writes
from racegate.history.edge import Edge
from racegate.history.trace import Trace

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


class Device(Protocol):
    """Handles (streams, events, flags, buffers) go back only to the device that made them."""

    @property
    def lanes(self) -> tuple[str, ...]:
        """The names of its streams."""
        ...

    def stream(self, lane: str) -> Stream:
        """The stream of that name."""
        ...

    def event(self, name: str) -> Event:
        """An event that has not been recorded."""
        ...

    def flag(self, name: str) -> Flag:
        """A flag that has not been set."""
        ...

    def device_buffer(
        self, name: str, shape: tuple[int, ...], dtype: DTypeLike, *, stream: Stream
    ) -> DeviceBuffer:
        """Uninitialised (poisoned) device memory from the stream's pool; reuse is ordered on that
        stream only.
        """
        ...

    def constant(self, name: str, values: np.ndarray) -> DeviceBuffer:
        """Device memory that is never written again (weights, tables)."""
        ...

    def host_buffer(self, name: str, shape: tuple[int, ...], dtype: DTypeLike) -> HostBuffer:
        """Uninitialised (poisoned) pinned host memory."""
        ...

    def mapped(self, buffer: HostBuffer) -> DeviceBuffer:
        """Pinned memory as kernels have it: they read it when they run, and no copy comes before
        it.
        """
        ...

    def free(self, buffer: DeviceBuffer, *, step: int) -> None:
        """Gives device memory back to its stream's pool: poison from here on, in that stream's
        order.
        """
        ...

    def free_host(self, buffer: HostBuffer) -> None:
        """Gives pinned memory back: poison at once. The caller has waited for every copy that uses
        it.
        """
        ...

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
        ...

    def capture(self, stream: Stream, name: str) -> AbstractContextManager[Graph]:
        """Yields a Graph in which the launches inside are recorded instead of issued.

        Only launches to `stream` can be captured, none with owners (they belong to a step) and
        none that lives shorter than the graph.
        """
        ...

    def replay(self, stream: Stream, graph: Graph, *, step: int, masks: Mapping[str, int]) -> None:
        """Issues a graph as one operation `graph:NAME@step`, whose footprint is the union of the
        captured ones. masks: the rows that captured footprints name.
        """
        ...

    def upload(
        self, stream: Stream, target: DeviceBuffer, source: HostBuffer, *, step: int, rows: int
    ) -> None:
        """Non-blocking host-to-device copy of the first rows; reads the source when it runs."""
        ...

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
        ...

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
        ...

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
        ...

    def record(self, stream: Stream, event: Event) -> None:
        """A new record of the event, complete when the stream gets there."""
        ...

    def wait_stream(self, stream: Stream, event: Event, edge: Edge, *, step: int) -> None:
        """Work issued to `stream` from now on starts after the latest record of `event`."""
        ...

    def wait_host(self, event: Event, edge: Edge, *, step: int) -> None:
        """Blocks the host until the latest record of `event` is complete. Raises DeadlockError."""
        ...

    def wait_flag(self, stream: Stream, flag: Flag) -> None:
        """Work issued to `stream` from now on starts after the flag is set."""
        ...

    def query(self, event: Event, *, step: int) -> bool:
        """Whether the latest record of `event` is complete, without waiting."""
        ...

    def mark(self, alias: str, *, step: int) -> None:
        """Holds may name this step `@alias`."""
        ...

    def action(self, name: str, *, step: int) -> AbstractContextManager[None]:
        """A host action: names the accesses inside, and is a point for holds when it ends."""
        ...

    def snapshot(self, stream: Stream, parts: Sequence[tuple[DeviceBuffer, Rows]]) -> Snapshot:
        """Copies of buffers (all rows, the first n, or the given rows) in stream order; not part of
        the program.
        """
        ...

    def finish(self) -> Trace:
        """Completes everything that is pending and returns the trace."""
        ...


class MeetingDevice(Device, Protocol):
    """The device of several ranks, on which their streams meet; one host at a time has its turn.
    Lanes end with the rank: `compute.rank1`.
    """

    def meeting_place(
        self, name: str, shape: tuple[int, ...], dtype: DTypeLike, edge: Edge
    ) -> DeviceBuffer:
        """Memory that all ranks use. edge: orders what they do there"""
        ...

    def turn(self, rank: int) -> None:
        """What the host does from now on is done by this rank's."""
        ...

    def arrive(self, stream: Stream, arrival: Version) -> None:
        """The stream's part in a meeting: complete when the stream gets there."""
        ...

    def wait_arrival(self, stream: Stream, arrival: Version, edge: Edge, *, step: int) -> None:
        """Work issued to `stream` from now on starts behind another stream's part, which may not
        have been issued yet. A wait that nothing can end raises DeadlockError, where it is forced.
        """
        ...
