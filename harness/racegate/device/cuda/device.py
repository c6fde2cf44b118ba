"""CudaDevice: the device protocol on real streams, with holds as latches.

What orders the work is in LatchedStreams; here is what the work is: memory, launches, graphs,
copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
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
    StreamWork,
    copy_range,
    gather_blocks,
    launch_work,
    no_owners,
    on_zeros,
    pass_owners,
    poison_work,
    scatter_blocks,
)
from racegate.device.launches import Graph, Kernel, Launch, accesses_of, union_of
from racegate.device.memory import Buffer, DeviceBuffer, FreedStorages, HostBuffer, Rows
from racegate.device.nodes import Event, Flag, Stream
from racegate.device.recorder import Recorder
from racegate.device.uses import Use
from racegate.history.edge import Edge
from racegate.history.trace import Trace
from racegate_kernels.backend import Backend
from racegate_kernels.poison import poison_of


class CudaDevice:
    """See racegate.device.protocol.Device. `close` it, or the next run's memory may be in use.

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
        self.lanes = lanes
        self._streams = LatchedStreams(
            lanes,
            cuda,
            pace=Pace() if pace is None else pace,
            chooser=chooser,
            dropped=dropped,
            recorder=recorder,
        )
        self._queues = self._streams.queues
        self.recorder = self._queues.recorder
        self._cuda = cuda
        self._backend = cuda.backend if backend is None else backend
        self._staging = Staging(cuda, self._streams.setup)
        self._capturing: Graph | None = None
        self._storages = 0
        self._freed: FreedStorages[CudaStorage] = FreedStorages()

    @property
    def has_expired(self) -> bool:
        """Whether the watchdog had to open the latches."""
        return self._streams.has_expired

    # What the protocol's methods mean is said there.

    def stream(self, lane: str) -> Stream:
        return self._queues.stream(lane)

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
        self._issue(stream, f"free:{buffer.name}@{step}", step, poison_work(self._cuda, buffer))
        self._freed.give(buffer.lane, storage_of(buffer))

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
        fixed = [storage_of(constant).tensor for constant in constants]
        launch = Launch(kernel, name, uses, fixed, scalars)
        if self._capturing is not None:
            self._capturing.add(stream.lane, launch)
            return
        full_name = f"kernel:{name}@{step}"
        work = StreamWork(
            accesses=tuple(accesses_of(launch)) if self.recorder.is_recording else (),
            put=partial(self._cuda.run, work=launch_work(launch, self._backend)),
            settle=pass_owners(launch, self.recorder, full_name, step),
        )
        self._issue(stream, full_name, step, work)

    @contextmanager
    def capture(self, stream: Stream, name: str) -> Iterator[Graph]:
        assert self._capturing is None, "captures do not nest"
        graph = self._capturing = Graph(name, stream.lane)
        try:
            yield graph
        finally:
            self._capturing = None
        self._streams.beat()
        self._staging.wait()
        graph.handle = self._cuda.capture(
            partial(_all, [launch_work(launch, self._backend) for launch in graph.launches]),
            rehearsal=partial(_all, [on_zeros(launch, self._backend) for launch in graph.launches]),
        )

    def replay(self, stream: Stream, graph: Graph, *, step: int, masks: Mapping[str, int]) -> None:
        full_name = f"graph:{graph.name}@{step}"
        # A graph knows no owners: without a recorder nobody asks which rows it touches.
        launches = graph.resolved(masks) if self.recorder.is_recording else []
        work = StreamWork(
            accesses=union_of(access for launch in launches for access in accesses_of(launch)),
            put=partial(self._cuda.replay, graph=graph.handle),
            settle=no_owners,
        )
        self._issue(stream, full_name, step, work)

    def upload(
        self, stream: Stream, target: DeviceBuffer, source: HostBuffer, *, step: int, rows: int
    ) -> None:
        name = f"h2d:{target.name.removesuffix('_gpu')}@{step}"
        self._copy(stream, name, target, source, step, rows)

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
        self._copy(stream, f"d2h:{name}@{step}", target, source, step, rows)

    def _copy(
        self, stream: Stream, name: str, target: Buffer, source: Buffer, step: int, rows: int
    ) -> None:
        for piece, first, end in self._queues.pieces(stream, name, rows):
            self._issue(stream, piece, step, copy_range(self._cuda, target, source, first, end))

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
        work = scatter_blocks(self._cuda, target, source, tuple(blocks))
        self._issue(stream, f"h2d:{name}@{step}", step, work)

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
        work = gather_blocks(self._cuda, target, source, tuple(blocks))
        self._issue(stream, f"d2h:{name}@{step}", step, work)

    def _issue(self, stream: Stream, name: str, step: int, work: StreamWork) -> None:
        assert self._capturing is None, f"{name} cannot be captured: only launches can"
        self._streams.issue(stream, name, step, work)

    def record(self, stream: Stream, event: Event) -> None:
        self._streams.record(stream, event)

    def wait_stream(self, stream: Stream, event: Event, edge: Edge, *, step: int) -> None:
        self._streams.wait_stream(stream, event, edge, step=step)

    def wait_host(self, event: Event, edge: Edge, *, step: int) -> None:
        self._streams.wait_host(event, edge, step=step)

    def wait_flag(self, stream: Stream, flag: Flag) -> None:
        self._streams.wait_flag(stream, flag)

    def query(self, event: Event, *, step: int) -> bool:
        return self._streams.query(event)

    def mark(self, alias: str, *, step: int) -> None:
        self._queues.mark(alias, step=step)

    def action(self, name: str, *, step: int) -> AbstractContextManager[None]:
        return self._queues.action(name, step=step)

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
        self._streams.put(
            stream, "", StreamWork(accesses=(), put=put, settle=snapshot.arrive), None
        )
        return snapshot

    def pending(self) -> tuple[str, ...]:
        """Names of the operations that were issued and have not happened."""
        return self._queues.pending()

    def finish(self) -> Trace:
        return self._streams.finish()

    def close(self) -> None:
        """Opens what is still closed and waits for the device: so a stopped run ends."""
        self._streams.close()

    def trace(self) -> Trace:
        """What has been recorded. A hold is realised if the device's evidence says so too."""
        return self._streams.trace()


def _all(works: Sequence[Callable[[], None]]) -> None:
    for work in works:
        work()
