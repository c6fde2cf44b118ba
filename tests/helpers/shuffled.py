"""Workers that answer in any order and are lost at any time, for laws about what that changes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from racegate.jobs.pools.driver import GoneError, Ready, said_of
from racegate.jobs.pools.pool import Task


class Handle:
    """See transport.Handle. losses: workers lost with a task, at most three, or at their end, at
    most two
    """

    def __init__(self, worker: Any, luck: random.Random, losses: Counter[str]) -> None:
        self._worker = worker
        self._luck = luck
        self._losses = losses
        self._task: Task[Any] | None = None
        self._is_ready = False

    def send(self, task: Task[Any] | None) -> None:
        self._task = task

    def hear(self) -> object:
        task = self._task
        if not self._is_ready:
            self._is_ready = True
            return Ready()
        self._live_on("its end" if task is None else task.name, most=2 if task is None else 3)
        if task is None:
            return said_of(self._worker.end)
        return said_of(lambda: self._worker.work(task.content))

    def _live_on(self, doing: str, *, most: int) -> None:
        if self._losses[doing] < most and self._luck.random() < 0.2:
            self._losses[doing] += 1
            raise GoneError("was unplugged")

    def signs(self) -> int:
        return 0

    def kill(self) -> None:
        pass

    def close(self) -> None:
        pass


class Shuffled:
    """A transport whose workers answer in any order."""

    def __init__(self, luck: random.Random) -> None:
        self._luck = luck
        self._losses: Counter[str] = Counter()

    def open(self, make: Callable[[int], Any], number: int) -> Handle:
        return Handle(make(number), self._luck, self._losses)

    def has_room(self) -> bool:
        return True

    def wait(self, handles: Sequence[Handle], timeout_s: float) -> Sequence[Handle]:
        return [self._luck.choice(handles)]

    def close(self) -> None:
        pass
