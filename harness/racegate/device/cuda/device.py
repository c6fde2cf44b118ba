"""CudaDevice: the device protocol on real streams, with holds as latches.

The host keeps the same books as the virtual device (QueuedDevice): what was issued and may not have
happened. There they are the execution; here they say which latches are closed, what a host wait
has to open first, and when an operation that is the point of a hold has completed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from racegate.device.chooser import HoldChooser, Ticket
from racegate.device.cuda.backlog import Backlog
from racegate.device.cuda.driver import CudaDriver, bits_of
from racegate.device.cuda.latches import Latch, Latches
from racegate.device.cuda.memory import (
    CudaEvent,
    CudaFlag,
    CudaGraph,
    CudaOp,
    CudaSnapshot,
    CudaStorage,
    stand_in,
)
from racegate.device.cuda.pacing import PATIENCE_S, Pacing
from racegate.device.cuda.staging import Staging
from racegate.device.cuda.watchdog import Watchdog
from racegate.device.cuda.work import (
    Work,
    copy_range,
    gather_blocks,
    launch_work,
    on_zeros,
    pass_owners,
    poison_work,
    scatter_blocks,
)
from racegate.device.launches import Launch, Launcher, accesses_of, union_of
from racegate.device.memory import StoragePools, VirtualBuffer, VirtualHostBuffer
from racegate.device.nodes import Node, VirtualFlag, VirtualStream
from racegate.device.protocol import Use
from racegate.device.queues import QueuedDevice
from racegate.device.recorder import Recorder
from racegate.history.edge import Edge
from racegate.history.trace import Access, HoldOutcome, Trace
from racegate_kernels.backend import Backend
from racegate_kernels.poison import poison_of


class CudaDevice(QueuedDevice):
    """See racegate.device.protocol.Device. `close` it, or the next run's memory may be in use.

    backend: other kernels than the driver's (seeded faults)
    patience_s: the host may be silent for so long before all latches open
    """

    def __init__(
        self,
        lanes: tuple[str, ...],
        cuda: CudaDriver,
        *,
        pacing: Pacing = Pacing.EAGER,
        chooser: HoldChooser | None = None,
        dropped: frozenset[str] = frozenset(),
        recorder: Recorder | None = None,
        backend: Backend | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        super().__init__(lanes, recorder=recorder, chooser=chooser, dropped=dropped)
        cuda.begin()
        self._cuda = cuda
        self._pacing = pacing
        self._backend = cuda.backend if backend is None else backend
        self._handles = [cuda.stream() for _ in lanes]
        self._setup = cuda.stream()
        self._staging = Staging(cuda, self._setup)
        self._latches = Latches(cuda, self._setup)
        self._backlog = Backlog(cuda)
        self._watchdog = Watchdog(seconds=patience_s, on_expiry=self._latches.expire)
        # Without holds and flags nothing the host waits for can be held up: no books are needed.
        self._keeps_books = pacing is Pacing.EAGER or self._chooser.has_holds
        self._launcher = Launcher(self.recorder, self._backend, is_audited=False, memo=None)
        self._capturing: CudaGraph | None = None
        self._events: list[Any] = []
        self._storages = 0
        self._is_set_up = True
        self._pools = StoragePools()
        self._is_finished = False

    def event(self, name: str) -> CudaEvent:
        return CudaEvent(name, self._cuda.event())

    def flag(self, name: str) -> CudaFlag:
        latch = self._latches.make()
        return CudaFlag(name, self.progress, latch, partial(self._open, latch))

    @property
    def has_expired(self) -> bool:
        """Whether the watchdog had to open the latches."""
        return self._watchdog.has_expired

    def device_buffer(
        self, name: str, shape: tuple[int, ...], dtype: Any, *, stream: VirtualStream
    ) -> VirtualBuffer:
        storage = self._pools.take(stream.index, shape, dtype)
        if storage is None:
            tensor = self._cuda.memory(shape, dtype)
            self._cuda.fill(self._setup, tensor, bits_of(poison_of(dtype), dtype))
            self._is_set_up = False
            storage = self._storage(stand_in(shape, dtype), tensor)
        return VirtualBuffer(name, storage, stream.index)

    def constant(self, name: str, values: np.ndarray) -> VirtualBuffer:
        tensor = self._cuda.memory(values.shape, values.dtype)
        self._staging.copy(tensor.reshape(-1), values.reshape(-1))
        self._is_set_up = False
        return VirtualBuffer(name, self._storage(stand_in(values.shape, values.dtype), tensor), 0)

    def host_buffer(self, name: str, shape: tuple[int, ...], dtype: Any) -> VirtualHostBuffer:
        storage = self._storage(self._cuda.pinned(shape, dtype), None)
        storage.poison()
        is_watched = self._pacing is Pacing.EAGER or self._chooser.watches_accesses
        hook = self._before_access if is_watched else None
        return VirtualHostBuffer(name, storage, self.recorder, reads=[], before_access=hook)

    def _before_access(self, access: Access) -> None:
        self._backlog.wait_for(access)
        if self._chooser.watches_accesses:
            super()._before_access(access)

    def _storage(self, array: np.ndarray, tensor: Any) -> CudaStorage:
        self._storages += 1
        return CudaStorage(self._storages, array, tensor)

    def _set_up(self) -> None:
        """What was made since the last time is there before anything that follows on a stream."""
        self._is_set_up = True
        event = self._done(self._setup)
        for handle in self._handles:
            self._cuda.wait(handle, event)
        self._events.append(event)

    def free(self, buffer: VirtualBuffer, *, step: int) -> None:
        assert not buffer.is_free, f"{buffer.name} is freed twice"
        buffer.is_free = True
        stream = self._in_order[buffer.lane - 1]
        self._issue(stream, f"free:{buffer.name}@{step}", step, poison_work(self._cuda, buffer))
        self._pools.give(buffer.lane, buffer.storage)

    def free_host(self, buffer: VirtualHostBuffer) -> None:
        buffer.write(np.full(buffer.shape, poison_of(buffer.dtype)))
        buffer.is_free = True

    def launch(
        self,
        stream: VirtualStream,
        kernel: Callable[..., None],
        name: str,
        *,
        step: int,
        uses: Sequence[Use],
        constants: Sequence[Any] = (),
        **scalars: Any,
    ) -> None:
        fixed = [constant.storage.tensor for constant in constants]
        launch = Launch(kernel, name, uses, fixed, scalars)
        if self._capturing is not None:
            self._capturing.add(stream.lane, launch)
            return
        full_name = f"kernel:{name}@{step}"
        work = Work(
            accesses=tuple(accesses_of(launch)) if self.recorder.is_recording else (),
            put=partial(self._cuda.run, work=launch_work(launch, self._backend)),
            settle=pass_owners(self._launcher, (launch,), full_name, step),
        )
        self._issue(stream, full_name, step, work)

    @contextmanager
    def capture(self, stream: VirtualStream, name: str) -> Iterator[CudaGraph]:
        assert self._capturing is None, "captures do not nest"
        graph = self._capturing = CudaGraph(name, stream.lane)
        try:
            yield graph
        finally:
            self._capturing = None
        self._watchdog.beat()
        self._staging.wait()
        graph.handle = self._cuda.capture(
            partial(_all, [launch_work(launch, self._backend) for launch in graph.launches]),
            rehearsal=partial(_all, [on_zeros(launch, self._backend) for launch in graph.launches]),
        )

    def replay(
        self, stream: VirtualStream, graph: CudaGraph, *, step: int, masks: Mapping[str, int]
    ) -> None:
        full_name = f"graph:{graph.name}@{step}"
        # A graph knows no owners: without a recorder nobody asks which rows it touches.
        launches = graph.resolved(masks) if self.recorder.is_recording else []
        work = Work(
            accesses=union_of(access for launch in launches for access in accesses_of(launch)),
            put=partial(self._cuda.replay, graph=graph.handle),
            settle=pass_owners(self._launcher, launches, full_name, step),
        )
        self._issue(stream, full_name, step, work)

    def upload_blocks(
        self,
        stream: VirtualStream,
        target: VirtualBuffer,
        source: VirtualHostBuffer,
        name: str,
        *,
        step: int,
        blocks: Sequence[int],
    ) -> None:
        work = scatter_blocks(self._cuda, target, source, tuple(blocks))
        self._issue(stream, f"h2d:{name}@{step}", step, work)

    def download_blocks(
        self,
        stream: VirtualStream,
        target: VirtualHostBuffer,
        source: VirtualBuffer,
        name: str,
        *,
        step: int,
        blocks: Sequence[int],
    ) -> None:
        work = gather_blocks(self._cuda, target, source, tuple(blocks))
        self._issue(stream, f"d2h:{name}@{step}", step, work)

    def _issue_rows(
        self,
        stream: VirtualStream,
        name: str,
        step: int,
        target: VirtualBuffer,
        source: VirtualBuffer,
        rows: tuple[int, int],
    ) -> None:
        self._issue(stream, name, step, copy_range(self._cuda, target, source, *rows))

    def _issue(self, stream: VirtualStream, name: str, step: int, work: Work) -> None:
        assert self._capturing is None, f"{name} cannot be captured: only launches can"
        self.recorder.issue(stream.index, name, step, work.accesses)
        self._put(stream, name, work, self._chooser.ticket(stream.lane, name))

    def _put(self, stream: VirtualStream, name: str, work: Work, ticket: Ticket | None) -> None:
        """Hands work to the device, behind a latch if it may not run at once."""
        self._watchdog.beat()
        if not self._is_set_up:
            self._set_up()
        handle = self._handles[stream.index - 1]
        is_eager = self._pacing is Pacing.EAGER
        latch = None
        if ticket is None and not (is_eager and stream.queue):
            self._backlog.wait_unless_on(handle)
        else:
            self._backlog.wait()
            latch = self._latches.make(ticket)
            self._watchdog.start()
            self._latches.put(handle, latch)
        work.put(handle)
        if latch is None and (is_eager or not self._keeps_books):
            self._let_go(handle, name, work)
            return
        done = self._done(handle)
        run = partial(self._complete, work, latch, done)
        stream.queue.append(CudaOp(name, run, ticket, latch=latch, done=done))
        self.progress()

    def _let_go(self, handle: Any, name: str, work: Work) -> None:
        """Nothing stands before this work: for the books it has happened."""
        work.settle()
        if self._pacing is Pacing.EAGER:
            self._backlog.add(handle, work.accesses)
            if self._chooser.reach(name):
                self.progress()

    def _open(self, latch: Latch) -> None:
        """What stands behind the latch comes after everything that the books say has happened."""
        self._backlog.wait()
        self._latches.open(latch)

    def _done(self, handle: Any) -> Any:
        """An event recorded behind what the stream has."""
        event = self._events.pop() if self._events else self._cuda.event()
        self._cuda.record(event, handle)
        return event

    def _complete(self, work: Work, latch: Latch | None, done: Any) -> None:
        """The books let an operation happen: the host waits until it has."""
        if latch is not None:
            self._open(latch)
        self._cuda.synchronize(done)
        self._events.append(done)
        work.settle()

    def record(self, stream: VirtualStream, event: Any) -> None:
        super().record(stream, event)
        self._cuda.record(event.handle, self._handles[stream.index - 1])

    def wait_stream(self, stream: VirtualStream, event: Any, edge: Edge, *, step: int) -> None:
        super().wait_stream(stream, event, edge, step=step)
        if event.latest is not None and edge.name not in self._dropped:
            if not event.latest.is_done:
                self._backlog.wait()
            self._cuda.wait(self._handles[stream.index - 1], event.handle)

    def wait_host(self, event: Any, edge: Edge, *, step: int) -> None:
        self._watchdog.beat()
        super().wait_host(event, edge, step=step)
        if event.latest is not None and edge.name not in self._dropped:
            self._cuda.synchronize(event.handle)

    def wait_flag(self, stream: VirtualStream, flag: Any) -> None:
        self._keeps_books = True
        self._backlog.wait()
        self._watchdog.start()
        super().wait_flag(stream, flag)
        self._latches.put(self._handles[stream.index - 1], flag.latch)

    def query(self, event: Any, *, step: int) -> bool:
        if event.latest is None:
            return True
        self._watchdog.beat()
        self.progress()
        self.recorder.query(event.latest)
        if self._pacing is Pacing.NATURAL:
            return self._cuda.query(event.handle)
        # By the books. The host waits when it touches what came before the record.
        return bool(event.latest.is_done)

    def progress(self) -> None:
        """EAGER: waits for whatever nothing holds. NATURAL: takes note of what has completed."""
        if self._keeps_books:
            super().progress()

    def _advance(self, stream: VirtualStream) -> bool:
        if self._pacing is Pacing.EAGER:
            return super()._advance(stream)
        moved = False
        while stream.queue and self._has_happened(stream.queue[0]):
            self._pass(stream, stream.queue[0])
            moved = True
        return moved

    def _has_happened(self, node: Node) -> bool:
        """Whether the device got past the head of a queue; opens its latch if no hold keeps it."""
        if isinstance(node, CudaOp):
            if _is_held(node):
                return False
            if node.latch is not None:
                self._latches.open(node.latch)
            return self._cuda.query(node.done)
        if isinstance(node, tuple):
            return node[0].is_done
        return not isinstance(node, VirtualFlag) or node.is_set

    def _force_head(self, stream: VirtualStream, waiter: str) -> None:
        node = stream.queue[0]
        if self._pacing is Pacing.NATURAL and isinstance(node, CudaOp) and _is_held(node):
            # Its point may be an operation that nothing holds and that is still running.
            self._let_unheld_complete()
            if not stream.queue or stream.queue[0] is not node:
                return
        super()._force_head(stream, waiter)

    def _let_unheld_complete(self) -> None:
        moved = True
        while moved:
            moved = False
            for stream in self._in_order:
                moved |= super()._advance(stream)

    def snapshot(
        self, stream: VirtualStream, parts: Sequence[tuple[VirtualBuffer, np.ndarray | int | None]]
    ) -> CudaSnapshot:
        copies: list[tuple[np.ndarray, np.ndarray | None]] = []
        moves: list[tuple[np.ndarray, Any]] = []
        for buffer, rows in parts:
            storage: Any = buffer.storage
            # Of scattered rows the whole buffer is copied, and they are picked later.
            source = storage.part(rows) if isinstance(rows, int) else storage.tensor
            target = self._cuda.pinned(tuple(source.shape), buffer.dtype)
            copies.append((target, rows if isinstance(rows, np.ndarray) else None))
            moves.append((target, source))

        def put(handle: Any) -> None:
            for target, source in moves:
                self._cuda.copy(handle, target, source)

        snapshot = CudaSnapshot(copies)
        self._put(stream, "", Work(accesses=(), put=put, settle=snapshot.arrive), None)
        return snapshot

    def finish(self) -> Trace:
        self._watchdog.beat()
        super().finish()
        self.close()
        return self.trace()

    def close(self) -> None:
        """Opens what is still closed and waits for the device: so a stopped run ends."""
        self._latches.expire()
        self._cuda.drain()
        self._watchdog.stop()
        self._latches.gather()
        self._is_finished = True

    def trace(self) -> Trace:
        """What has been recorded. A hold is realised if the device's evidence says so too."""
        trace = super().trace()
        missing = self._latches.unconfirmed() if self._is_finished else {}
        holds = tuple(
            HoldOutcome(
                hold=hold.hold,
                matched=hold.matched,
                realised=max(0, hold.realised - missing.get(hold.hold, 0)),
            )
            for hold in trace.holds
        )
        return Trace(lanes=trace.lanes, events=trace.events, holds=holds)


def _is_held(op: CudaOp) -> bool:
    return op.ticket is not None and op.ticket.is_held


def _all(works: Sequence[Callable[[], None]]) -> None:
    for work in works:
        work()
