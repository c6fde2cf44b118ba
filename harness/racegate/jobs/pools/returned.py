"""Tasks whose workers were lost: which wait for another worker, which for the others to rest, and
which are not handed out again.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from enum import Enum, auto
from typing import Generic, TypeAlias, TypeVar

from racegate.jobs.pools.pool import Task

T = TypeVar("T")
# A task, and how many had been handed out before it.
Numbered: TypeAlias = tuple[int, Task[T]]
# Whether a worker does a task.
Takes: TypeAlias = Callable[[Task[T]], bool]


class WorkerLoss(Enum):
    """How a worker was lost: gone, as what others do may end it too, or silent for too long."""

    GONE = auto()
    SILENT = auto()


class ReturnedTasks(Generic[T]):
    """losses_max: workers that a task may take with it beside others, and then alone. A task is no
    suspect for being silent, which nothing else makes it.

    back: for whoever is free; suspects: for one worker while the others rest
    """

    def __init__(self, losses_max: int) -> None:
        self.back: deque[Numbered[T]] = deque()
        self.suspects: deque[Numbered[T]] = deque()
        self._losses_max = losses_max
        self._losses: Counter[int] = Counter()
        self._silences: Counter[int] = Counter()

    def __bool__(self) -> bool:
        return bool(self.back or self.suspects)

    def next_back(self, takes: Takes[T]) -> Numbered[T] | None:
        """The first that a worker does, which is handed out now."""
        return _first(self.back, takes)

    def next_suspect(self, takes: Takes[T]) -> Numbered[T] | None:
        """The same of suspects."""
        return _first(self.suspects, takes)

    def has_suspect(self, takes: Takes[T]) -> bool:
        """Whether one waits that a worker does."""
        return any(takes(task) for _, task in self.suspects)

    def takes(self, numbered: Numbered[T], loss: WorkerLoss) -> bool:
        """Whether a task whose worker was lost waits for another one; if not, that was the last."""
        number, _ = numbered
        self._losses[number] += 1
        self._silences[number] += loss is WorkerLoss.SILENT
        is_hung = self._silences[number] >= self._losses_max
        if is_hung or self._losses[number] >= 2 * self._losses_max:
            return False
        is_suspect = self._losses[number] >= self._losses_max
        (self.suspects if is_suspect else self.back).append(numbered)
        return True

    def blame(self, number: int) -> str:
        """Of a task that is not handed out again, in words."""
        lost = self._losses[number]
        alone = max(0, lost - self._losses_max)
        how = f", {alone} of them while it ran alone" if alone else ""
        return f"{lost} workers were lost with it{how}"


def _first(waiting: deque[Numbered[T]], takes: Takes[T]) -> Numbered[T] | None:
    found = next((numbered for numbered in waiting if takes(numbered[1])), None)
    if found is not None:
        waiting.remove(found)
    return found
