"""SURW: selectively uniform random walk."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from racegate.device.stepping import Transition


class SurwStepper:
    """Selectively uniform random walk (Zhao et al., ASPLOS 2025).

    Each process is weighed by how many of the interesting steps (those in conflicts) it has left,
    which makes the interleavings of the interesting steps equally likely; the others follow at
    random.

    interesting: (process, ordinal) of the steps to sample, from an earlier run
    """

    def __init__(self, seed: int, *, interesting: frozenset[tuple[int, int]]) -> None:
        self._random = Random(seed)
        self._interesting = interesting
        self._left: dict[int, int] = {}
        for process, _ in interesting:
            self._left[process] = self._left.get(process, 0) + 1
        self._next: int | None = None

    def choose(self, enabled: Sequence[Transition]) -> int:
        if self._next is None or self._left.get(self._next, 0) == 0:
            self._next = self._draw()
        # Interesting steps of other processes wait for the drawn one; everything else may go.
        free = [
            index
            for index, step in enumerate(enabled)
            if step.process == self._next or (step.process, step.ordinal) not in self._interesting
        ]
        index = self._random.choice(free) if free else self._random.randrange(len(enabled))
        step = enabled[index]
        if (step.process, step.ordinal) in self._interesting:
            self._left[step.process] -= 1
            self._next = None
        return index

    def _draw(self) -> int | None:
        total = sum(self._left.values())
        if total == 0:
            return None
        mark = self._random.randrange(total)
        for process, left in self._left.items():
            if mark < left:
                return process
            mark -= left
        return None
