"""What a driver asks of the way to its workers, wherever they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from racegate.jobs.pools.pool import MakeWorker, Task

T = TypeVar("T")
R = TypeVar("R")


class Handle(Protocol):
    """The way to one worker, which begins by saying that it is ready."""

    def send(self, task: Task[T] | None) -> None:
        """The next task; None: there are no more. If the worker is gone, `hear` says so."""
        ...

    def hear(self) -> object:
        """What the worker says next: of its start, of a task or of its end. Raises GoneError."""
        ...

    def signs(self) -> int:
        """How many signs of life the worker has given."""
        ...

    def kill(self) -> None:
        """Ends the worker, wherever it is."""
        ...

    def close(self) -> None:
        """After `kill`: waits until nothing is left of it."""
        ...


L = TypeVar("L", bound=Handle)


class Transport(Protocol[L]):
    """Where workers are."""

    def open(self, make: MakeWorker[T, R], number: int) -> L:
        """Starts a worker."""
        ...

    def has_room(self) -> bool:
        """Whether another worker could be started now."""
        ...

    def wait(self, handles: Sequence[L], timeout_s: float) -> Sequence[L]:
        """Those that have something to hear, as soon as one has."""
        ...

    def close(self) -> None:
        """When all handles are closed: nothing is left."""
        ...
