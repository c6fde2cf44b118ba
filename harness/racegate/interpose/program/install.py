"""Puts the virtual device under the torch of this process."""

from __future__ import annotations

import atexit
import ctypes
import gc
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Protocol

import torch

from racegate.history.schedule import Holds
from racegate.interpose.device.calls import Calls
from racegate.interpose.device.frames import without_ours
from racegate.interpose.device.library import Library
from racegate.interpose.device.queue import Queue, WorkQueue
from racegate.interpose.device.session import Session
from racegate.interpose.kernels.aliases import resizing
from racegate.interpose.kernels.declared.copies import CopyOperator, CopyOperators, Moves
from racegate.interpose.kernels.declared.engines import declare_sglang, declare_vllm
from racegate.interpose.kernels.interpreted.accesses import LaunchJudged
from racegate.interpose.kernels.interpreted.driver import answer_for_driver
from racegate.interpose.kernels.kept.memo import Memo
from racegate.interpose.kernels.run import Kernels
from racegate.interpose.kernels.triton_kernels import TritonKernels
from racegate.interpose.native.streams import handle_of
from racegate.interpose.program.arrays import track_arrays
from racegate.interpose.program.hostmode import DeviceKernels, HostMode
from racegate.interpose.program.imports import AfterImport, open_virtual_runtime
from racegate.interpose.program.observing import read_value
from racegate.interpose.program.threads import track_collectives, track_threads


@dataclass(frozen=True, slots=True)
class Installed:
    """What must live as long as the process: registrations and callbacks.

    computes: kernels are computed here, so what was found out about them serves other runs
    tears_copies: half of a copy can land before the other
    """

    session: Session
    library: Library
    calls: Calls
    kernels: Kernels
    triton: TritonKernels
    copies: CopyOperators
    computes: ClassVar[bool] = True
    tears_copies: ClassVar[bool] = True

    def dump_shapes(self) -> bytes:
        """What was found out about the results of operators; empty: nothing."""
        return self.kernels.shapes.dump()

    def load_shapes(self, shapes: bytes) -> None:
        """Adds what another process has found out."""
        self.kernels.shapes.load(shapes)

    def make_queue(
        self,
        holds: Holds,
        *,
        settles: bool = False,
        limit_s: float = 10.0,
        on_landing: Callable[[str], None] | None = None,
    ) -> WorkQueue:
        """settles, limit_s: of a real GPU; here what is not held runs at once, nothing hangs.

        on_landing: see Queue
        """
        return Queue(holds, on_landing=on_landing, guards=self.session.guards)

    def read(self, value: object) -> tuple[bytes, str]:
        """The bytes of an observed value, and how to show them."""
        return read_value(self.session, value)

    def declare(
        self, schema: str, moves: Callable[..., Moves], reads: tuple[str, ...], any_order: str
    ) -> None:
        """An operator that only copies, see CopyOperator."""
        self.copies.add(CopyOperator(schema=schema, moves=moves, reads=reads, any_order=any_order))

    def finish(self) -> None:
        """The program is over."""


def install(
    library: Library,
    session: Session,
    refuse: Callable[[str], None],
    memo: Memo | None = None,
    on_launch: Callable[[LaunchJudged], None] | None = None,
) -> Installed:
    """From here on every CUDA operator of the process runs on the virtual device.

    library: the preloaded one; refuse: called with the name of what nobody modelled, must not
    return; memo: launches that it knows need not be computed again;
    on_launch: see TritonKernels
    """
    graphs = session.graphs
    calls = Calls(library, session, refuse)
    kernels = Kernels(session, library, graphs, refuse)
    _prefer_plain_kernels()
    kernels.register()
    triton = TritonKernels(session, library, graphs, refuse, memo, on_launch)
    copies = CopyOperators(session, library, calls)
    AfterImport(
        {
            "triton.runtime.interpreter": triton.patch,
            "triton.runtime.autotuner": triton.fix_autotuners,
            "triton.backends": answer_for_driver,
            "torch.distributed": partial(track_collectives, session),
            "triton.experimental.gluon._runtime": triton.refuse_gluon,
            "vllm._custom_ops": partial(declare_vllm, copies),
            "sgl_kernel": partial(declare_sglang, copies),
        }
    ).install()
    _count_devices()
    open_virtual_runtime()
    track_arrays(session)
    track_events(session)
    track_streams(session)
    track_backward(session)
    track_snapshots()
    track_storages(session)
    atexit.register(library.hush)
    return Installed(session, library, calls, kernels, triton, copies)


def _prefer_plain_kernels() -> None:
    """Where torch may choose among kernels: those that have a CPU body."""
    torch.backends.cudnn.enabled = False
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_cudnn_sdp(False)


def _count_devices() -> None:
    """torch asks NVML first, which is there beside a real driver, and it asks the real driver."""
    torch.cuda._raw_device_count_nvml = lambda: -1  # as if there were none


class OnDevice(Protocol):
    """A process with a device, virtual or real."""

    @property
    def session(self) -> Session: ...

    @property
    def kernels(self) -> DeviceKernels: ...


def enter(installed: OnDevice, refuse: Callable[[str], None]) -> None:
    """In the process of the run: this thread and those it starts are watched from now on. refuse:
    ends the run if racegate fails in one of them.
    """
    torch.cuda.init()  # only now: torch refuses a device that was set up before a fork
    track_threads(installed.session, lambda: watching(installed), refuse)
    watching(installed).__enter__()


def watching(installed: OnDevice) -> AbstractContextManager[object]:
    """What this thread does inside is seen, if anything is to be: a process that entered its device
    when nothing was needs it for a run in which something is.
    """
    if installed.session.is_bare:
        return nullcontext()
    return HostMode(installed.session, installed.kernels)


def track_events(session: Session) -> None:
    """Records and waits are taken in at their line; queries are answered by the session."""
    for owner, names in (
        (torch.cuda.Event, ("record", "wait")),
        (torch.cuda.Stream, ("wait_event", "wait_stream", "record_event")),
        (torch.Event, ("record", "wait")),
    ):
        for name in names:
            _set_member(owner, name, _draining(session, getattr(owner, name)))
    query_other = torch.Event.query

    def query_event(event: Any) -> bool:
        return not event.cuda_event or session.query_event(event.cuda_event)

    def query_stream(stream: Any) -> bool:
        return session.query_stream(handle_of(stream))

    def query_any(event: Any) -> bool:
        if event.device is None or event.device.type != "cuda":
            return bool(query_other(event))
        return session.query_event(event.event_id)

    torch.cuda.Event.query = query_event
    _set_member(torch.Event, "query", query_any)
    torch.cuda.Stream.query = query_stream


def track_streams(session: Session) -> None:
    """Where a program makes a stream: torch takes one from a pool, and asks the runtime once."""
    make = torch.cuda.Stream.__new__

    def making(cls: type, *args: Any, **kwargs: Any) -> Any:
        stream = make(cls, *args, **kwargs)
        if not {"stream_id", "stream_ptr"} & kwargs.keys():
            session.origins.stream_made(handle_of(stream))
        return stream

    torch.cuda.Stream.__new__ = making


def _set_member(owner: Any, name: str, value: Callable[..., Any]) -> None:
    """Of a type of C code too, which is not to be changed and has a dictionary all the same."""
    try:
        setattr(owner, name, value)
    except TypeError:
        gc.get_referents(owner.__dict__)[0][name] = value
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(owner))


def track_backward(session: Session) -> None:
    """Autograd's threads go on from their caller, and the caller from them."""
    run = torch.autograd.graph._engine_run_backward

    def tracked(*args: Any, **kwargs: Any) -> Any:
        with session.host_threads.backward(session.drain):
            return run(*args, **kwargs)

    for module in (torch.autograd.graph, torch.autograd):
        module._engine_run_backward = tracked


def track_storages(session: Session) -> None:
    """Storages that the program resizes itself, as FSDP does: no operator is called for it."""
    torch.UntypedStorage.resize_ = resizing(session, torch.UntypedStorage.resize_)


def track_snapshots() -> None:
    """Torch's snapshots of the allocator say where the program asked for memory, and not us."""
    take = torch._C._cuda_memorySnapshot

    def snapshot(*args: Any) -> Any:
        taken = take(*args)
        blocks = [block for segment in taken["segments"] for block in segment["blocks"]]
        traces = [entry for trace in taken["device_traces"] for entry in trace]
        for entry in (*taken["segments"], *blocks, *traces):
            frames = entry.get("frames", [])
            entry["frames"] = [frames[at] for at in without_ours([f["filename"] for f in frames])]
        return taken

    torch._C._cuda_memorySnapshot = snapshot


def _draining(session: Session, original: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        session.drain()
        return result

    call.__doc__ = original.__doc__
    return call
