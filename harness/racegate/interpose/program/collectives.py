"""Edges of torch.distributed: its C++ threads go on from a call, and who waits from them."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from racegate.interpose.device.session import Session

CALLS = (
    "allgather", "allgather_coalesced", "allgather_into_tensor_coalesced", "allreduce",
    "allreduce_coalesced", "alltoall", "alltoall_base", "barrier", "broadcast", "gather",
    "_allgather_base", "_reduce_scatter_base", "monitored_barrier", "recv", "recv_anysource",
    "reduce", "reduce_scatter", "reduce_scatter_tensor_coalesced", "scatter", "send",
)  # fmt: skip


def track_collectives(session: Session, distributed: ModuleType) -> None:
    """Of a process group as Python has it. distributed: the module `torch.distributed`"""
    if not distributed.is_available():
        return
    bindings: Any = distributed.distributed_c10d
    group, work = bindings.ProcessGroup, bindings.Work
    for name in CALLS:
        if hasattr(group, name):
            setattr(group, name, _handing_on(session, getattr(group, name)))
    work.wait = _waiting(session, work.wait)


def _handing_on(session: Session, original: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        session.drain()
        with session.host_threads.giving():
            result = original(*args, **kwargs)
            session.drain()
        return result

    return call


def _waiting(session: Session, original: Callable[..., Any]) -> Callable[..., Any]:
    def wait(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        session.drain()
        session.host_threads.take_from_others()
        return result

    return wait
