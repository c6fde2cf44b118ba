"""What the engine may ask of a device. The virtual and the CUDA device both give it, with one
meaning.

Semantics: streams are first in, first out; a wait binds to the latest record of the event at the
time of the call; waiting for a never-recorded event does nothing; an operation reads its inputs
when it runs, not when it is issued; what it did not declare it does not get.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import msgspec
import numpy as np

from racegate.history.edge import Edge
from racegate.history.trace import Owner, Trace

RowMask = int | str
Array = Any  # NumPy array on the virtual device, torch tensor on CUDA


class DeadlockError(Exception):
    """A wait that nothing can end: names the waiter, the edge and what it waits for."""


class FootprintError(Exception):
    """An operation touched rows it had not declared."""


class DeviceBuffer(Protocol):
    """Memory of the device. The engine never looks inside; kernels and copies do."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> Any: ...


class HostBuffer(Protocol):
    """Pinned host memory. Every host access goes through here and is recorded, by row."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    def read(self, rows: int | None = None, *, expect: Sequence[Owner | None] = ()) -> np.ndarray:
        """A copy of the first `rows` rows (all by default). expect: whose value each row should
        hold.
        """
        ...

    def read_row(self, row: int, *, expect: Owner | None = None) -> Any:
        """A copy of one row."""
        ...

    def peek(self) -> np.ndarray:
        """A copy of everything for an observer; not an access of the program, so not recorded."""
        ...

    def write(self, values: Any, *, row_first: int = 0, own: Sequence[Owner] = ()) -> None:
        """Writes whole rows from `row_first` on. own: whose values they are."""
        ...

    def write_row(self, row: int, value: Any, *, own: Owner | None = None) -> None: ...
    def write_columns(self, row: int, first: int, values: Sequence[Any]) -> None:
        """Writes part of one row, from column `first` on."""
        ...

    def move_row(self, source: int, target: int) -> None:
        """Copies a row, and its owner, over another."""
        ...

    def swap_rows(self, first: int, second: int) -> None: ...


class Use(msgspec.Struct, frozen=True, gc=False):
    """One declared use of a buffer by an operation.

    rows: the first `rows` rows (the kernel gets that view); None: the whole buffer
    mask: only these rows, as a bit mask, of the whole buffer (pools addressed through tables); in a
        captured launch a name, which stands for the mask that the replay gives
    expect: (row, owner) pairs the reader means to find; own: owners of the written rows from 0 on
    """

    buffer: Any
    is_read: bool
    is_write: bool
    rows: int | None = None
    mask: RowMask | None = None
    expect: tuple[tuple[int, Owner], ...] = ()
    own: tuple[Owner, ...] = ()

    @property
    def known_mask(self) -> int | None:
        """The mask, where a name has been replaced."""
        mask = self.mask
        assert not isinstance(mask, str), f"no rows were given for {mask} of {self.buffer.name}"
        return mask


def reads(
    buffer: DeviceBuffer,
    rows: int | None = None,
    *,
    mask: RowMask | None = None,
    expect: tuple[tuple[int, Owner], ...] = (),
) -> Use:
    return Use(buffer, True, False, rows, mask, expect)


def writes(
    buffer: DeviceBuffer,
    rows: int | None = None,
    *,
    mask: RowMask | None = None,
    own: tuple[Owner, ...] = (),
) -> Use:
    return Use(buffer, False, True, rows, mask, (), own)


def updates(
    buffer: DeviceBuffer,
    rows: int | None = None,
    *,
    mask: RowMask | None = None,
    expect: tuple[tuple[int, Owner], ...] = (),
    own: tuple[Owner, ...] = (),
) -> Use:
    """Reads and writes."""
    return Use(buffer, True, True, rows, mask, expect, own)


class Stream(Protocol):
    @property
    def lane(self) -> str: ...


class Event(Protocol):
    @property
    def name(self) -> str: ...


class Flag(Protocol):
    """A word in pinned memory that the host sets once; a stream can wait for it (a latch, an
    external signal).
    """

    def set(self) -> None: ...


class Snapshot(Protocol):
    """Copies of device memory taken in stream order."""

    @property
    def is_done(self) -> bool:
        """Whether the stream got there; true once the device has finished."""
        ...

    def arrays(self) -> list[np.ndarray]: ...


class Graph(Protocol):
    """Captured launches. Buffers, views, constants and scalars are as they were at the capture;
    what stands in the buffers is read at each replay.
    """

    @property
    def name(self) -> str: ...


class Device(Protocol):
    """Handles (streams, events, flags, buffers) go back only to the device that made them."""

    @property
    def lanes(self) -> tuple[str, ...]:
        """The names of its streams."""
        ...

    def stream(self, lane: str) -> Stream: ...
    def event(self, name: str) -> Event: ...
    def flag(self, name: str) -> Flag: ...

    def device_buffer(
        self, name: str, shape: tuple[int, ...], dtype: Any, *, stream: Any
    ) -> DeviceBuffer:
        """Uninitialised (poisoned) device memory from the stream's pool; reuse is ordered on that
        stream only.
        """
        ...

    def constant(self, name: str, values: np.ndarray) -> DeviceBuffer:
        """Device memory that is never written again (weights, tables)."""
        ...

    def host_buffer(self, name: str, shape: tuple[int, ...], dtype: Any) -> HostBuffer:
        """Uninitialised (poisoned) pinned host memory."""
        ...

    def free(self, buffer: Any, *, step: int) -> None:
        """Gives device memory back to its stream's pool: poison from here on, in that stream's
        order.
        """
        ...

    def free_host(self, buffer: Any) -> None:
        """Gives pinned memory back: poison at once. The caller has waited for every copy that uses
        it.
        """
        ...

    def launch(
        self,
        stream: Any,
        kernel: Callable[..., None],
        name: str,
        *,
        step: int,
        uses: Sequence[Use],
        constants: Sequence[Any] = (),
        **scalars: Any,
    ) -> None:
        """Issues kernel(backend, *views, *constants, **scalars), one view per use, in order."""
        ...

    def capture(self, stream: Any, name: str) -> AbstractContextManager[Any]:
        """Yields a Graph in which the launches inside are recorded instead of issued.

        Only launches to `stream` can be captured, none with owners (they belong to a step) and
        none that lives shorter than the graph.
        """
        ...

    def replay(self, stream: Any, graph: Any, *, step: int, masks: Mapping[str, int]) -> None:
        """Issues a graph as one operation `graph:NAME@step`, whose footprint is the union of the
        captured ones. masks: the rows that captured footprints name.
        """
        ...

    def upload(self, stream: Any, target: Any, source: Any, *, step: int, rows: int) -> None:
        """Non-blocking host-to-device copy of the first rows; reads the source when it runs."""
        ...

    def download(
        self,
        stream: Any,
        target: Any,
        source: Any,
        name: str,
        *,
        step: int,
        rows: int,
    ) -> None:
        """Non-blocking device-to-host copy of the first rows."""
        ...

    def upload_blocks(
        self, stream: Any, target: Any, source: Any, name: str, *, step: int, blocks: Sequence[int]
    ) -> None:
        """Non-blocking copy of the source's first rows to the given blocks of a pool."""
        ...

    def download_blocks(
        self, stream: Any, target: Any, source: Any, name: str, *, step: int, blocks: Sequence[int]
    ) -> None:
        """Non-blocking copy of the given blocks of a pool to the target's first rows."""
        ...

    def record(self, stream: Any, event: Any) -> None: ...
    def wait_stream(self, stream: Any, event: Any, edge: Edge, *, step: int) -> None:
        """Work issued to `stream` from now on starts after the latest record of `event`."""
        ...

    def wait_host(self, event: Any, edge: Edge, *, step: int) -> None:
        """Blocks the host until the latest record of `event` is complete. Raises DeadlockError."""
        ...

    def wait_flag(self, stream: Any, flag: Any) -> None: ...
    def query(self, event: Any, *, step: int) -> bool:
        """Whether the latest record of `event` is complete, without waiting."""
        ...

    def mark(self, alias: str, *, step: int) -> None:
        """Holds may name this step `@alias`."""
        ...

    def action(self, name: str, *, step: int) -> AbstractContextManager[None]:
        """A host action: names the accesses inside, and is a point for holds when it ends."""
        ...

    def snapshot(
        self, stream: Any, parts: Sequence[tuple[Any, np.ndarray | int | None]]
    ) -> Snapshot:
        """Copies of buffers (all rows, the first n, or the given rows) in stream order; not part of
        the program.
        """
        ...

    def finish(self) -> Trace:
        """Completes everything that is pending and returns the trace."""
        ...
