"""VirtualDevice: streams, versioned events and buffers on the CPU, with completion under a
chooser's control.

An operation runs (reads, computes, writes) in one go when the chooser lets it, at the latest when a
wait needs it. The host is never really concurrent with it; what makes it asynchronous is that the
operation runs *later than issued*, as late as any real device could.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from racegate.device.chooser import HoldChooser
from racegate.device.launches import Launch, Launcher, VirtualGraph, accesses_of, union_of
from racegate.device.masks import prefix_mask
from racegate.device.memo import OpMemo
from racegate.device.memory import Storage, StoragePools, VirtualBuffer, VirtualHostBuffer
from racegate.device.nodes import (
    Op,
    VirtualEvent,
    VirtualFlag,
    VirtualSnapshot,
    VirtualStream,
)
from racegate.device.protocol import Use
from racegate.device.queues import QueuedDevice
from racegate.device.recorder import Recorder
from racegate.device.stepping import Stepper
from racegate.device.virtual.copies import copy_range, gather_blocks, scatter_blocks
from racegate_kernels.backend import EAGER, Backend
from racegate_kernels.poison import poison_of


class VirtualDevice(QueuedDevice):
    """See racegate.device.protocol.Device.

    lanes, chooser, stepper, dropped: see QueuedDevice
    memo: results of operations by content, shared between runs
    is_audited: every operation gets scratch copies in which undeclared rows are poison; touching
        one raises
    """

    def __init__(
        self,
        lanes: tuple[str, ...],
        *,
        chooser: HoldChooser | None = None,
        stepper: Stepper | None = None,
        dropped: frozenset[str] = frozenset(),
        recorder: Recorder | None = None,
        backend: Backend = EAGER,
        is_audited: bool = False,
        memo: OpMemo | None = None,
    ) -> None:
        super().__init__(
            lanes, recorder=recorder, chooser=chooser, stepper=stepper, dropped=dropped
        )
        self._memo = memo
        self._launcher = Launcher(self.recorder, backend, is_audited=is_audited, memo=memo)
        self._capturing: VirtualGraph | None = None
        self.storages: list[Storage] = []
        self.reads: list[tuple[int, int]] = []
        self._pools = StoragePools()

    def event(self, name: str) -> VirtualEvent:
        return VirtualEvent(name)

    def flag(self, name: str) -> VirtualFlag:
        return VirtualFlag(name, self.progress)

    def device_buffer(
        self, name: str, shape: tuple[int, ...], dtype: Any, *, stream: VirtualStream
    ) -> VirtualBuffer:
        storage = self._pools.take(stream.index, shape, dtype) or self._storage(shape, dtype)
        return VirtualBuffer(name, storage, stream.index)

    def constant(self, name: str, values: np.ndarray) -> VirtualBuffer:
        storage = self._storage((len(values), *values.shape[1:]), values.dtype)
        storage.hold_constant(name, values)
        return VirtualBuffer(name, storage, lane=0)

    def host_buffer(self, name: str, shape: tuple[int, ...], dtype: Any) -> VirtualHostBuffer:
        storage = self._storage(shape, dtype)
        is_watched = self._driver is not None or self._chooser.watches_accesses
        hook = self._before_access if is_watched else None
        return VirtualHostBuffer(name, storage, self.recorder, reads=self.reads, before_access=hook)

    def _storage(self, shape: tuple[int, ...], dtype: Any) -> Storage:
        storage = Storage(len(self.storages) + 1, shape, dtype, memo=self._memo)
        self.storages.append(storage)
        return storage

    def free(self, buffer: VirtualBuffer, *, step: int) -> None:
        assert not buffer.is_free, f"{buffer.name} is freed twice"
        buffer.is_free = True
        stream = self._in_order[buffer.lane - 1]
        storage = buffer.storage
        whole = (buffer.access(prefix_mask(len(storage.array)), is_write=True),)
        self._issue(stream, f"free:{buffer.name}@{step}", step, whole, storage.poison)
        self._pools.give(buffer.lane, storage)

    def free_host(self, buffer: VirtualHostBuffer) -> None:
        buffer.write(np.full(buffer.shape, poison_of(buffer.storage.array.dtype)))
        buffer.is_free = True

    def launch(
        self,
        stream: VirtualStream,
        kernel: Callable[..., None],
        name: str,
        *,
        step: int,
        uses: Sequence[Use],
        constants: Sequence[VirtualBuffer] = (),
        **scalars: Any,
    ) -> None:
        fixed = [constant.storage.array for constant in constants]
        launch = Launch(kernel, name, uses, fixed, scalars)
        if self._capturing is not None:
            self._capturing.add(stream.lane, launch)
            return
        full_name = f"kernel:{name}@{step}"

        def run() -> None:
            self._launcher.run(launch, full_name, step)

        self._issue(stream, full_name, step, tuple(accesses_of(launch)), run)

    @contextmanager
    def capture(self, stream: VirtualStream, name: str) -> Iterator[VirtualGraph]:
        assert self._capturing is None, "captures do not nest"
        self._capturing = VirtualGraph(name, stream.lane)
        try:
            yield self._capturing
        finally:
            self._capturing = None

    def replay(
        self, stream: VirtualStream, graph: VirtualGraph, *, step: int, masks: Mapping[str, int]
    ) -> None:
        full_name = f"graph:{graph.name}@{step}"
        launches = graph.resolved(masks)
        accesses = [access for launch in launches for access in accesses_of(launch)]

        def run() -> None:
            for launch in launches:
                self._launcher.run(launch, full_name, step)

        self._issue(stream, full_name, step, union_of(accesses), run)

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
        work = scatter_blocks(target, source, blocks, self._memo)
        self._issue(stream, f"h2d:{name}@{step}", step, *work)

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
        work = gather_blocks(target, source, blocks, self._memo)
        self._issue(stream, f"d2h:{name}@{step}", step, *work)

    def _issue_rows(
        self,
        stream: VirtualStream,
        name: str,
        step: int,
        target: VirtualBuffer,
        source: VirtualBuffer,
        rows: tuple[int, int],
    ) -> None:
        self._issue(stream, name, step, *copy_range(target, source, *rows, self._memo))

    def _issue(
        self,
        stream: VirtualStream,
        name: str,
        step: int,
        accesses: tuple[Any, ...],
        run: Callable[[], None],
    ) -> None:
        assert self._capturing is None, f"{name} cannot be captured: only launches can"
        self.recorder.issue(stream.index, name, step, accesses)
        if self._driver is not None:
            stream.queue.append(Op(name, run, None, step=self._driver.as_step(stream)))
            return
        ticket = self._chooser.ticket(stream.lane, name)
        if stream.queue or ticket is not None:
            stream.queue.append(Op(name, run, ticket))
            return
        run()
        if self._chooser.has_holds and self._chooser.reach(name):
            self.progress()

    def query(self, event: VirtualEvent, *, step: int) -> bool:
        if event.latest is None:
            return True
        if self._driver is not None:
            self._accesses_in_action += 1
            label = f"{self.recorder.action[0]}#{self._accesses_in_action}"
            self._driver.host_step(label, self.recorder.unknown_flags(event.latest))
        self.recorder.query(event.latest)
        return event.latest.is_done

    def snapshot(
        self,
        stream: VirtualStream,
        parts: Sequence[tuple[VirtualBuffer, np.ndarray | int | None]],
    ) -> VirtualSnapshot:
        result = VirtualSnapshot()
        sources = [(buffer.storage, rows) for buffer, rows in parts]

        def run() -> None:
            result.fill([storage.rows(rows) for storage, rows in sources])

        if stream.queue:
            stream.queue.append(Op("", run, None))
        else:
            run()
        return result
