"""Torch's process groups as Python has them: questions and waits that torch answers in C++ code, by
asking for events that only a host wait of ours completes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from racegate.interpose.device.library import Library
from racegate.interpose.device.session import Session

_BLOCKING = ("TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT")


def track_works(session: Session, library: Library, streams: set[int]) -> None:
    """From now on. streams: those that have carried collectives"""
    bindings: Any = torch.distributed.distributed_c10d
    work: Any = bindings.Work
    work.wait = _waiting(session, library, work.wait, work.is_completed)
    work.is_completed = _asking(session, library, work.is_completed)
    for name in ("wait", "get"):
        setattr(bindings.Store, name, _seen(getattr(bindings.Store, name)))
    bindings.ProcessGroup.shutdown = _ending(session, streams, bindings.ProcessGroup.shutdown)


def _seen(wait: Callable[..., Any]) -> Callable[..., Any]:
    """A wait of a store, which has no frame of its own: who looks sees that it waits for others."""

    def waited(*args: Any, **kwargs: Any) -> Any:
        return wait(*args, **kwargs)

    waited.__doc__ = wait.__doc__
    return waited


def _asking(session: Session, library: Library, ask: Callable[..., Any]) -> Callable[..., bool]:
    """Whether a collective is complete: both answers, as of any other query."""

    def is_completed(work: Any) -> bool:
        library.take_asked()
        if ask(work):
            session.drain()
            return True
        event = library.take_asked()
        return bool(event and session.query_event(event) and ask(work))

    is_completed.__doc__ = ask.__doc__
    return is_completed


def _waiting(
    session: Session, library: Library, wait: Callable[..., Any], ask: Callable[..., Any]
) -> Callable[..., Any]:
    """A wait that blocks the host, because it has a limit of time or the user wants it so, asks
    again and again: the host has waited for the event before it asks.
    """

    def waited(work: Any, *args: Any, **kwargs: Any) -> Any:
        if args or kwargs or any(os.environ.get(name) == "1" for name in _BLOCKING):
            library.take_asked()
            ask(work)
            event = library.take_asked()
            if event:
                session.wait_event(event)
        return wait(work, *args, **kwargs)

    waited.__doc__ = wait.__doc__
    return waited


def _ending(
    session: Session, streams: set[int], shutdown: Callable[..., Any]
) -> Callable[..., Any]:
    """The end of a group waits until its watchdog, which only asks, has seen all complete."""

    def ended(group: Any, *args: Any, **kwargs: Any) -> Any:
        for stream in sorted(streams):
            session.synchronize(stream, by="the end of a process group")
        return shutdown(group, *args, **kwargs)

    ended.__doc__ = shutdown.__doc__
    return ended
