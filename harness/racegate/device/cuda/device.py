"""CudaDevice: the device protocol on real streams, with holds as latches.

What orders the work is in LatchedStreams; here is what the work is: memory, launches, graphs,
copies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import DTypeLike

from racegate.device.chooser import HoldChooser
from racegate.device.cuda.driver import CudaDriver, Handle, Memory, Tensor, bits_of
from racegate.device.cuda.memory import CudaSnapshot, CudaStorage, stand_in, storage_of
from racegate.device.cuda.pacing import Pace
from racegate.device.cuda.staging import Staging
from racegate.device.cuda.streams import LatchedStreams
from racegate.device.cuda.work import (
    PutWork,
    copy_blocks,
    copy_range,
    launch_work,
    no_owners,
    on_zeros,
    pass_owners,
    poison_work,
)
from racegate.device.issuing import IssuingDevice
from racegate.device.launches import Graph, Launch, accesses_of, union_of
from racegate.device.masks import prefix_mask
from racegate.device.memory import Buffer, DeviceBuffer, FreedStorages, HostBuffer, Rows
from racegate.device.nodes import Event, Flag, Stream
from racegate.device.recorder import Recorder
from racegate.history.trace import Access
from racegate_kernels.backend import Backend
from racegate_kernels.poison import poison_of


class CudaDevice(IssuingDevice[PutWork]):
    """A GPU. `close` it, or the next run's memory may be in use.

    lanes, chooser, dropped: see PendingQueues
    backend: other kernels than the driver's (seeded faults)
    """

    def __init__(
        self,
        lanes: tuple[str, ...],
        cuda: CudaDriver,
        *,
        pace: Pace | None = None,
        chooser: HoldChooser | None = None,
        dropped: frozenset[str] = frozenset(),
        recorder: Recorder | None = None,
        backend: Backend | None = None,
    ) -> None:
        self._streams = LatchedStreams(
            lanes,
            cuda,
            pace=Pace() if pace is None else pace,
            chooser=chooser,
            dropped=dropped,
            recorder=recorder,
        )
        super().__init__(lanes, self._streams.queues, self._streams)
        self._cuda = cuda
        self._backend = cuda.backend if backend is None else backend
        self._staging = Staging(cuda, self._streams.setup)
        self._storages = 0
        self._freed: FreedStorages[CudaStorage] = FreedStorages()

    @property
    def has_expired(self) -> bool:
        return self._streams.has_expired

    def event(self, name: str) -> Event:
        return Event(name, self._cuda.event())

    def flag(self, name: str) -> Flag:
        return self._streams.flag(name)

    def device_buffer(
        self, name: str, shape: tuple[int, ...], dtype: DTypeLike, *, stream: Stream
    ) -> DeviceBuffer:
        storage = self._freed.take(stream.index, shape, dtype)
        if storage is None:
            tensor = self._cuda.memory(shape, dtype)
            self._cuda.fill(self._streams.setup, tensor, bits_of(poison_of(dtype), dtype))
            self._streams.expect_setup()
            storage = self._storage(stand_in(shape, dtype), tensor)
        return DeviceBuffer(name, storage, stream.index)

    def constant(self, name: str, values: np.ndarray) -> DeviceBuffer:
        tensor = self._cuda.memory(values.shape, values.dtype)
        self._staging.copy(tensor.reshape(-1), values.reshape(-1))
        self._streams.expect_setup()
        return DeviceBuffer(name, self._storage(stand_in(values.shape, values.dtype), tensor), 0)

    def host_buffer(self, name: str, shape: tuple[int, ...], dtype: DTypeLike) -> HostBuffer:
        storage = self._storage(self._cuda.pinned(shape, dtype), None)
        storage.poison()
        hook = self._streams.before_access if self._streams.watches_accesses else None
        return HostBuffer(name, storage, self.recorder, reads=[], before_access=hook)

    def _storage(self, array: np.ndarray, tensor: Tensor | None) -> CudaStorage:
        self._storages += 1
        return CudaStorage(self._storages, array, tensor)

    def mapped(self, buffer: HostBuffer) -> DeviceBuffer:
        pinned = storage_of(buffer)
        return DeviceBuffer(buffer.name, pinned.mapped(self._cuda.mapped(pinned.array)), 0)

    def free(self, buffer: DeviceBuffer, *, step: int) -> None:
        buffer.end()
        stream = self._queues.streams[buffer.lane - 1]
        whole = (buffer.access(prefix_mask(buffer.shape[0]), is_write=True),)
        work = poison_work(self._cuda, buffer)
        self._issue(stream, f"free:{buffer.name}@{step}", step, whole, work)
        self._freed.give(buffer.lane, storage_of(buffer))

    def _fixed(self, constant: DeviceBuffer) -> Tensor:
        return storage_of(constant).tensor

    def _launch(self, stream: Stream, launch: Launch, name: str, step: int) -> None:
        accesses = tuple(accesses_of(launch)) if self.recorder.is_recording else ()
        put = partial(self._cuda.run, work=launch_work(launch, self._backend))
        work = PutWork(put, pass_owners(launch, self.recorder, name, step))
        self._issue(stream, name, step, accesses, work)

    def _captured(self, graph: Graph) -> object:
        self._streams.beat()
        self._staging.wait()
        return self._cuda.capture(
            partial(_all, [launch_work(launch, self._backend) for launch in graph.launches]),
            rehearsal=partial(_all, [on_zeros(launch, self._backend) for launch in graph.launches]),
        )

    def replay(self, stream: Stream, graph: Graph, *, step: int, masks: Mapping[str, int]) -> None:
        full_name = f"graph:{graph.name}@{step}"
        # A graph knows no owners: without a recorder nobody asks which rows it touches.
        launches = graph.resolved(masks) if self.recorder.is_recording else []
        accesses = union_of(access for launch in launches for access in accesses_of(launch))
        work = PutWork(partial(self._cuda.replay, graph=graph.handle), no_owners)
        self._issue(stream, full_name, step, accesses, work)

    def _range(self, target: Buffer, source: Buffer, first: int, end: int) -> PutWork:
        return copy_range(self._cuda, target, source, first, end)

    def _blocks(
        self, target: Buffer, source: Buffer, into: tuple[int, ...], out_of: tuple[int, ...]
    ) -> PutWork:
        return copy_blocks(self._cuda, target, source, into, out_of)

    def _put(self, stream: Stream, name: str, accesses: tuple[Access, ...], work: PutWork) -> None:
        ticket = self._queues.chooser.ticket(stream.lane, name)
        self._streams.put(stream, name, work, ticket, accesses)

    def query(self, event: Event, *, step: int) -> bool:
        return self._streams.query(event)

    def snapshot(self, stream: Stream, parts: Sequence[tuple[DeviceBuffer, Rows]]) -> CudaSnapshot:
        copies: list[tuple[np.ndarray, np.ndarray | None]] = []
        moves: list[tuple[np.ndarray, Memory]] = []
        for buffer, rows in parts:
            storage = storage_of(buffer)
            # Of scattered rows the whole buffer is copied, and they are picked later.
            source = storage.part(rows) if isinstance(rows, int) else storage.memory
            target = self._cuda.pinned(tuple(source.shape), buffer.dtype)
            copies.append((target, rows if isinstance(rows, np.ndarray) else None))
            moves.append((target, source))

        def put(handle: Handle) -> None:
            for target, source in moves:
                self._cuda.copy(handle, target, source)

        snapshot = CudaSnapshot(copies)
        self._streams.put(stream, "", PutWork(put, snapshot.arrive), None)
        return snapshot

    def close(self) -> None:
        self._streams.close()


def _all(works: Sequence[Callable[[], None]]) -> None:
    for work in works:
        work()
