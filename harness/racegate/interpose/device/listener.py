"""What a session is given: the runtime under it, and what the process of an engine adds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from racegate.interpose.device.library import GivenWork
from racegate.interpose.device.queue import Work, WorkQueue
from racegate.order.ranges import Ranges
from racegate.order.recorder import Stack


class Runtime(Protocol):
    """The CUDA runtime that was preloaded, and its log.

    lands_at_once: what is issued in a recorded run has run by then, as on the virtual device
    work: how much the program has given the device
    """

    @property
    def work(self) -> GivenWork: ...

    @property
    def lands_at_once(self) -> bool: ...

    def take_in(self, session: Any) -> None:
        """Tells the session that asks what was logged since."""
        ...

    def guard(self, low: int, high: int, *, mode: int) -> bool:
        """Closes or opens whole pages around [low, high), as `Guards` says; False if it cannot."""
        ...

    def settle_event(self, event: int, version: int) -> None:
        """The allocators may be told that this record of the event is complete."""
        ...

    def thread_number(self) -> int:
        """Of the calling thread, never another's; odd if autograd started the thread."""
        ...


class Listener(Protocol):
    """Names of its own for operations, and what it notes of them."""

    @property
    def hears(self) -> bool:
        """Whether it is to be told even where nothing is recorded or held."""
        ...

    def label(self, kind: str, stack: Stack) -> str:
        """The name of the next operation or access of this kind."""
        ...

    def kind(self, kind: str, reads: Ranges, writes: Ranges) -> str:
        """The kind of an operation; of a copy with the name of the buffer on the host's side."""
        ...

    def access_kind(self, kind: str, reads: Ranges, writes: Ranges) -> str:
        """The kind of an access of the host, with the name of the buffer."""
        ...

    def stack(self, stack: Stack) -> Stack:
        """The stack without frames of code that works on the engine's behalf."""
        ...

    def work(self, kind: str, run: Work) -> Work:
        """The work of an operation, with what the host gets by it."""
        ...

    def reach(
        self,
        queue: WorkQueue,
        label: str,
        reads: Ranges,
        writes: Ranges,
        is_behind: Callable[[], bool],
    ) -> None:
        """The program comes to an access. is_behind: whether it waits for what has not run"""
        ...

    def reached(self, queue: WorkQueue, label: str, reads: Ranges, writes: Ranges) -> None:
        """It has come there: an operation was issued, or the host touches the bytes next."""
        ...

    def touches(self, reads: Ranges, writes: Ranges) -> None:
        """The host is about to touch these bytes, and has said so."""
        ...

    def learns(self, value: object) -> None:
        """The host has a value of the device, or a size that follows from one."""
        ...
