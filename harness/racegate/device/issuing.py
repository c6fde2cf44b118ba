"""What the virtual and the CUDA device do alike: how the program's calls become named operations
with footprints. What an operation does when it runs is for each of them to say.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Generic, Protocol, TypeVar

import numpy as np

from racegate.device.launches import Graph, Kernel, Launch
from racegate.device.masks import mask_of, prefix_mask
from racegate.device.memory import Buffer, DeviceBuffer, HostBuffer, require_live
from racegate.device.nodes import Event, Flag, Stream
from racegate.device.pending import PendingQueues
from racegate.device.uses import Use
from racegate.history.edge import Edge
from racegate.history.trace import Access, Trace
from racegate_kernels.numerics import Array
from racegate_kernels.poison import poison_of

Work = TypeVar("Work")
Accesses = tuple[Access, ...]


class Ordering(Protocol):
    """What orders the operations of a device: the pending queues, and on CUDA real streams too."""

    def record(self, stream: Stream, event: Event) -> None: ...

    def wait_stream(self, stream: Stream, event: Event, edge: Edge, *, step: int) -> object: ...

    def wait_host(self, event: Event, edge: Edge, *, step: int) -> object: ...

    def wait_flag(self, stream: Stream, flag: Flag) -> None: ...

    def finish(self) -> Trace: ...

    def trace(self) -> Trace: ...


class IssuingDevice(ABC, Generic[Work]):
    """See racegate.device.protocol.Device, which says what the methods mean.

    lanes: the names of its streams; queues: the program's operations that have not happened
    order: what orders them
    """

    def __init__(self, lanes: tuple[str, ...], queues: PendingQueues, order: Ordering) -> None:
        self.lanes = lanes
        self.recorder = queues.recorder
        self._queues = queues
        self._order = order
        self._capturing: Graph | None = None

    @abstractmethod
    def _fixed(self, constant: DeviceBuffer) -> Array:
        """A constant as kernels have it."""

    @abstractmethod
    def _launch(self, stream: Stream, launch: Launch, name: str, step: int) -> None:
        """Issues a launch that is not captured."""

    @abstractmethod
    def _range(self, target: Buffer, source: Buffer, first: int, end: int) -> Work:
        """Copies rows first .. end - 1, with their owners."""

    @abstractmethod
    def _blocks(
        self, target: Buffer, source: Buffer, into: tuple[int, ...], out_of: tuple[int, ...]
    ) -> Work:
        """Copies row out_of[i] of the source to row into[i] of the target, without owners."""

    @abstractmethod
    def _put(self, stream: Stream, name: str, accesses: Accesses, work: Work) -> None:
        """Runs at once, or when its turn has come."""

    def _issue(self, stream: Stream, name: str, step: int, accesses: Accesses, work: Work) -> None:
        assert self._capturing is None, f"{name} cannot be captured: only launches can"
        self.recorder.issue(stream.index, name, step, accesses)
        self._put(stream, name, accesses, work)

    def stream(self, lane: str) -> Stream:
        return self._queues.stream(lane)

    def free_host(self, buffer: HostBuffer) -> None:
        buffer.write(np.full(buffer.shape, poison_of(buffer.dtype)))
        buffer.end()

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
        name = f"{name}{stream.suffix}"
        launch = Launch(kernel, name, uses, [self._fixed(one) for one in constants], scalars)
        if self._capturing is not None:
            self._capturing.add(stream.lane, launch)
            return
        self._launch(stream, launch, f"kernel:{name}@{step}", step)

    def upload(
        self, stream: Stream, target: DeviceBuffer, source: HostBuffer, *, step: int, rows: int
    ) -> None:
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
        name = f"d2h:{name}{stream.suffix}@{step}"
        self._copy(stream, name, target, source, step, rows)

    def _copy(
        self, stream: Stream, name: str, target: Buffer, source: Buffer, step: int, rows: int
    ) -> None:
        require_live(target, source)
        for piece, first, end in self._queues.pieces(stream, name, rows):
            mask = prefix_mask(end) ^ prefix_mask(first)
            accesses = (source.access(mask, is_write=False), target.access(mask, is_write=True))
            self._issue(stream, piece, step, accesses, self._range(target, source, first, end))

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
        rows, name = range(len(blocks)), f"d2h:{name}{stream.suffix}@{step}"
        self._copy_blocks(stream, name, target, source, step, rows, blocks)

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
        require_live(target, source)
        read = source.access(mask_of(out_of), is_write=False)
        accesses = (read, target.access(mask_of(into), is_write=True))
        work = self._blocks(target, source, tuple(into), tuple(out_of))
        self._issue(stream, name, step, accesses, work)

    def record(self, stream: Stream, event: Event) -> None:
        self._order.record(stream, event)

    def wait_stream(self, stream: Stream, event: Event, edge: Edge, *, step: int) -> None:
        self._order.wait_stream(stream, event, edge, step=step)

    def wait_host(self, event: Event, edge: Edge, *, step: int) -> None:
        self._order.wait_host(event, edge, step=step)

    def wait_flag(self, stream: Stream, flag: Flag) -> None:
        self._order.wait_flag(stream, flag)

    def mark(self, alias: str, *, step: int) -> None:
        self._queues.mark(alias, step=step)

    def action(self, name: str, *, step: int) -> AbstractContextManager[None]:
        return self._queues.action(name, step=step)

    def pending(self) -> tuple[str, ...]:
        """Names of the operations that were issued and have not happened."""
        return self._queues.pending()

    def finish(self) -> Trace:
        return self._order.finish()

    def trace(self) -> Trace:
        """What has been recorded so far; on CUDA a hold is realised if its evidence says so too."""
        return self._order.trace()
