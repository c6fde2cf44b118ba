"""VirtualDevice: streams, versioned events and buffers on the CPU, with completion under a
chooser's control.

An operation runs (reads, computes, writes) in one go when the chooser lets it, at the latest when a
wait needs it. The host is never really concurrent with it; what makes it asynchronous is that the
operation runs *later than issued*, as late as any real device could.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import DTypeLike

from racegate.device.chooser import HoldChooser
from racegate.device.issuing import IssuingDevice
from racegate.device.launches import Graph, Launch, accesses_of, union_of
from racegate.device.masks import prefix_mask
from racegate.device.memory import Buffer, DeviceBuffer, FreedStorages, HostBuffer, Rows
from racegate.device.nodes import Event, Flag, Op, Stream
from racegate.device.pending import PendingQueues
from racegate.device.protocol import MeetingDevice
from racegate.device.recorder import Recorder
from racegate.device.stepping import Stepper
from racegate.device.virtual.copies import copy_blocks, copy_range
from racegate.device.virtual.launcher import Launcher
from racegate.device.virtual.memo import OpMemo
from racegate.device.virtual.storage import VirtualSnapshot, VirtualStorage, storage_of
from racegate.history.edge import Edge
from racegate.history.trace import Access
from racegate_kernels.backend import EAGER, Backend

QUERIED = -1  # in place of a content, which is never negative
Run = Callable[[], None]


class VirtualDevice(IssuingDevice[Run], MeetingDevice):
    """Everything on the CPU.

    lanes, chooser, dropped: see PendingQueues
    backend: the kernels; memo: results of operations by content, shared between runs
    is_audited: every operation gets scratch copies in which undeclared rows are poison; touching
        one raises
    storages: all memory there is; reads: (content, rows) of every read by the host, and what every
        query said
    """

    def __init__(
        self,
        lanes: tuple[str, ...],
        *,
        chooser: HoldChooser | Stepper | None = None,
        dropped: frozenset[str] = frozenset(),
        recorder: Recorder | None = None,
        backend: Backend = EAGER,
        is_audited: bool = False,
        memo: OpMemo | None = None,
    ) -> None:
        queues = PendingQueues(lanes, recorder=recorder, chooser=chooser, dropped=dropped)
        super().__init__(lanes, queues, queues)
        self.backend = backend
        self._memo = memo
        self._before_access = queues.before_access
        self._launcher = Launcher(self.recorder, backend, is_audited=is_audited, memo=memo)
        self.storages: list[VirtualStorage] = []
        self.reads: list[tuple[int, int]] = []
        self._shown = [0] * len(lanes)
        self._freed: FreedStorages[VirtualStorage] = FreedStorages()

    def event(self, name: str) -> Event:
        return Event(name)

    def flag(self, name: str) -> Flag:
        return Flag(name, self._queues.progress)

    def device_buffer(
        self, name: str, shape: tuple[int, ...], dtype: DTypeLike, *, stream: Stream
    ) -> DeviceBuffer:
        storage = self._freed.take(stream.index, shape, dtype) or self._storage(shape, dtype)
        return DeviceBuffer(name, storage, stream.index)

    def constant(self, name: str, values: np.ndarray) -> DeviceBuffer:
        storage = self._storage((len(values), *values.shape[1:]), values.dtype)
        storage.hold_constant(name, values)
        return DeviceBuffer(name, storage, lane=0)

    def host_buffer(self, name: str, shape: tuple[int, ...], dtype: DTypeLike) -> HostBuffer:
        storage = self._storage(shape, dtype)
        queues = self._queues
        is_watched = queues.stepped is not None or queues.chooser.watches_accesses
        hook = self._before_access if is_watched else None
        return HostBuffer(name, storage, self.recorder, reads=self.reads, before_access=hook)

    def _storage(self, shape: tuple[int, ...], dtype: DTypeLike) -> VirtualStorage:
        storage = VirtualStorage(len(self.storages) + 1, shape, dtype, memo=self._memo)
        self.storages.append(storage)
        return storage

    def mapped(self, buffer: HostBuffer) -> DeviceBuffer:
        return DeviceBuffer(buffer.name, buffer.storage, 0)

    def free(self, buffer: DeviceBuffer, *, step: int) -> None:
        buffer.end()
        stream = self._queues.streams[buffer.lane - 1]
        storage = storage_of(buffer)
        whole = (buffer.access(prefix_mask(len(storage.array)), is_write=True),)
        self._issue(
            stream, f"free:{buffer.name}{stream.suffix}@{step}", step, whole, storage.poison
        )
        self._freed.give(buffer.lane, storage)

    def _fixed(self, constant: DeviceBuffer) -> np.ndarray:
        return constant.storage.array

    def _launch(self, stream: Stream, launch: Launch, name: str, step: int) -> None:
        run = partial(self._launcher.run, launch, name, step)
        self._issue(stream, name, step, tuple(accesses_of(launch)), run)

    def replay(self, stream: Stream, graph: Graph, *, step: int, masks: Mapping[str, int]) -> None:
        full_name = f"graph:{graph.name}{stream.suffix}@{step}"
        launches = graph.resolved(masks)
        accesses = [access for launch in launches for access in accesses_of(launch)]

        def run() -> None:
            for launch in launches:
                self._launcher.run(launch, full_name, step)

        self._issue(stream, full_name, step, union_of(accesses), run)

    def _range(self, target: Buffer, source: Buffer, first: int, end: int) -> Run:
        return copy_range(target, source, first, end, self._memo)

    def _blocks(
        self, target: Buffer, source: Buffer, into: tuple[int, ...], out_of: tuple[int, ...]
    ) -> Run:
        return copy_blocks(target, source, into, out_of, self._memo)

    def _put(self, stream: Stream, name: str, accesses: tuple[Access, ...], work: Run) -> None:
        queues = self._queues
        if queues.stepped is not None:
            stream.queue.append(Op(name, work, None, step=queues.stepped.as_step(stream)))
            return
        ticket = queues.chooser.ticket(stream.lane, name)
        if stream.queue or ticket is not None:
            stream.queue.append(Op(name, work, ticket))
            return
        work()
        if queues.chooser.has_holds and queues.chooser.reach(name):
            queues.progress()

    def meeting_place(
        self, name: str, shape: tuple[int, ...], dtype: DTypeLike, edge: Edge
    ) -> DeviceBuffer:
        storage = self._storage(shape, dtype)
        if self._queues.is_kept(edge):
            self.recorder.met.add(storage.number)
        return DeviceBuffer(name, storage, lane=0)

    def query(self, event: Event, *, step: int) -> bool:
        version = event.latest
        if version is None:
            return True
        self._queues.before_query(version)
        self.recorder.query(version)
        self.reads.append((QUERIED, int(version.is_done)))
        return version.is_done

    def snapshot(
        self, stream: Stream, parts: Sequence[tuple[DeviceBuffer, Rows]]
    ) -> VirtualSnapshot:
        result = VirtualSnapshot()
        sources = [(storage_of(buffer), rows) for buffer, rows in parts]

        def run() -> None:
            result.fill([storage.rows(rows) for storage, rows in sources])
            self._show(stream, [storage for storage, _ in sources])

        self._look(stream, run)
        return result

    def _look(self, stream: Stream, run: Run) -> None:
        """Runs what is no operation of the program, when the stream gets there."""
        if stream.queue:
            stream.queue.append(Op("", run, None))
        else:
            run()

    def _show(self, stream: Stream, storages: Sequence[VirtualStorage]) -> None:
        """Observers of the stream are shown what is in there."""
        if self._memo is not None:
            contents = [storage.content for storage in storages]
            at = stream.index - 1
            self._shown[at] = self._memo.number("shown", self._shown[at], *contents)

    @property
    def shown(self) -> tuple[int, ...]:
        """Of each stream, a number for everything that its observers were shown so far."""
        return tuple(self._shown)

    def use_chooser(self, chooser: HoldChooser) -> None:
        """Other holds from here on, on a device that was gone back to."""
        self._queues.use_chooser(chooser)

    def standing(self) -> tuple[Hashable, ...]:
        """Of a device with a memo, everything that what comes on it can depend on."""
        contents = tuple([storage.content for storage in self.storages])
        owners = tuple([tuple(storage.owners) for storage in self.storages])
        return (contents, owners, self._queues.queued())

    @property
    def has_pending(self) -> bool:
        """Whether anything was issued that has not happened."""
        return self._queues.has_pending
