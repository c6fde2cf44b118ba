"""Puts the recorder over the torch of this process, and a real GPU under it."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from typing import Any

import torch

from racegate.history.schedule import Holds
from racegate.interpose.device.queue import WorkQueue
from racegate.interpose.device.session import Session
from racegate.interpose.gpu.calls import GpuCalls
from racegate.interpose.gpu.forward import ForwardLibrary
from racegate.interpose.gpu.kernels import GpuKernels
from racegate.interpose.gpu.queue import LatchQueue
from racegate.interpose.gpu.triton_kernels import CompiledKernels
from racegate.interpose.program.arrays import track_arrays
from racegate.interpose.program.imports import AfterImport
from racegate.interpose.program.install import track_backward, track_events, track_storages
from racegate.interpose.program.observing import read_value

EXPIRED = "operations that ran before their hold ended: a latch stood too long, or did not hold"


class GpuDevice:
    """What must live as long as the process: registrations and callbacks. computes, tears_copies:
    the GPU runs kernels itself, and copies land as a whole
    """

    computes = False
    tears_copies = False

    def __init__(
        self, library: ForwardLibrary, session: Session, refuse: Callable[[str], None]
    ) -> None:
        """library: in front of the runtime; refuse: called with what nobody modelled."""
        self.session = session
        self.library = library
        self.graphs = session.graphs
        self.calls = GpuCalls(library, session, refuse)
        self.kernels = self.make_kernels()
        self.kernels.register()
        triton = CompiledKernels(session, self.library, self.graphs, self.calls.take_inside)
        AfterImport({
            "triton.runtime.jit": triton.patch,
            "triton.runtime.autotuner": triton.fix_autotuners,
        }).install()  # fmt: skip
        track_arrays(session)
        track_events(session)
        self._complete_queries()
        track_backward(session)
        track_storages(session)
        atexit.register(self.library.hush)

    def make_kernels(self) -> GpuKernels:
        """Not registered yet."""
        return GpuKernels(self.session, self.library, self.graphs, self.calls)

    def dump_shapes(self) -> bytes:
        """Empty: the GPU makes the results."""
        return b""

    def load_shapes(self, shapes: bytes) -> None:
        """Nothing: the GPU makes the results."""

    def read(self, value: object) -> tuple[bytes, str]:
        is_there = isinstance(value, torch.Tensor) and value.is_cuda
        return read_value(self.session, self.kernels.fetch(value) if is_there else value)

    def make_queue(
        self,
        holds: Holds,
        *,
        settles: bool = False,
        limit_s: float = 10.0,
        on_landing: Callable[[str], None] | None = None,
    ) -> WorkQueue:
        """In the process of the run, before CUDA begins.

        settles: what is not held is waited for at once (a run with holds always does so); limit_s:
        how long a latch may stand; on_landing: of the virtual device: a GPU tells nobody
        """
        if holds:  # to load a kernel may wait for the device, and so for a latch
            os.environ.setdefault("CUDA_MODULE_LOADING", "EAGER")
            self.library.limit(limit_s)
        may_settle = self._may_settle if settles or holds else None
        stream_of = self.session.stream_handle
        return LatchQueue(self.library, stream_of, holds=holds, settles=may_settle)

    def declare(self, *_: object) -> None:
        """Nothing: an operator does on a GPU what it was compiled to."""

    def finish(self) -> None:
        """The program is over: what its holds did not do is said."""
        for hold, count in self.session.queue.expired.items():
            self.session.not_seen[f"{EXPIRED}: {hold}"] += count

    def _may_settle(self) -> bool:
        """A capture forbids to wait."""
        return not self.graphs.capturing

    def _complete_queries(self) -> None:
        """A query that is answered "ready" waits until that is so."""
        query_event, query_stream = torch.cuda.Event.query, torch.cuda.Stream.query
        library = self.library

        def complete_event(event: Any) -> bool:
            is_ready = bool(query_event(event))
            if is_ready and event.cuda_event:
                library.wait_mark(event.cuda_event)
            return is_ready

        def complete_stream(stream: Any) -> bool:
            is_ready = bool(query_stream(stream))
            if is_ready:
                library.wait_stream(stream.cuda_stream)
            return is_ready

        torch.cuda.Event.query = complete_event
        torch.cuda.Stream.query = complete_stream
