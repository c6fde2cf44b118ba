"""The session of an engine: what code on its behalf does on the device."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch

from racegate.interpose.device.session import Session
from racegate.interpose.kernels.aliases import alias_of, bytes_of
from racegate.interpose.outcome import DeviceKind
from racegate.order.ranges import Ranges
from racegate.targets.common.inside.listener import EngineListener

Tensor = Any  # torch is untyped here
_unseen = torch._C._DisableTorchDispatch  # our own work takes no way through modes


@dataclass(frozen=True, slots=True)
class EngineSession:
    """A session with its listener.

    kind: whether device memory can be computed on from here, or only by the GPU
    capture_of: the number of the graph that a stream is being captured into, 0 if none
    """

    session: Session
    listener: EngineListener
    kind: DeviceKind = DeviceKind.VIRTUAL
    capture_of: Callable[[int], int] = lambda stream: 0

    def own(self) -> AbstractContextManager[None]:
        return self.session.own()

    def memory_of(self, tensor: Tensor) -> Tensor:
        """What the device's work on a tensor is done with: itself, or a CPU alias of its bytes."""
        return tensor if self.kind is DeviceKind.CUDA else alias_of(self.session, tensor)

    def launch(
        self,
        kind: str,
        reads: list[Tensor],
        writes: list[Tensor],
        work: Callable[[list[Tensor], list[Tensor]], None],
        *,
        also_reads: Ranges = (),
        also_writes: Ranges = (),
    ) -> None:
        """An operation of ours on the current stream. work: gets the memory of reads and writes,
        when the device comes to it; also_reads, also_writes: bytes that it touches beside them
        """
        session = self.session
        with self.own(), _unseen():
            given = [self.memory_of(tensor) for tensor in reads]
            made = [self.memory_of(tensor) for tensor in writes]
            read = tuple(r for tensor in reads for r in bytes_of(session, tensor)) + also_reads
            written = tuple(r for tensor in writes for r in bytes_of(session, tensor)) + also_writes

        def run() -> None:
            with self.own(), _unseen(), torch.no_grad():
                work(given, made)

        stream = torch._C._cuda_getCurrentRawStream(0)
        session.drain()  # the beginning of a capture may be logged, and not be known yet
        graph = self.capture_of(stream) if session.graphs.capturing else 0
        if not session.graphs.add(graph, kind, stream, read, written, run):
            session.issue(kind, stream, read, written, run)
            session.queue.issued()
