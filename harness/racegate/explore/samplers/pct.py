"""PCT: probabilistic concurrency testing."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from racegate.device.stepping import Transition


class PctStepper:
    """Probabilistic concurrency testing with `depth` (Burckhardt et al., ASPLOS 2010).

    Processes have random priorities; at depth - 1 random steps the running one falls to the bottom.
    """

    def __init__(self, seed: int, *, depth: int, steps: int) -> None:
        self._random = Random(seed)
        self._priority: dict[int, float] = {}
        self._taken = 0
        self._drops = {self._random.randrange(max(1, steps)) for _ in range(depth - 1)}

    def choose(self, enabled: Sequence[Transition]) -> int:
        for step in enabled:
            if step.process not in self._priority:
                self._priority[step.process] = 1 + self._random.random()
        best = max(range(len(enabled)), key=lambda i: self._priority[enabled[i].process])
        if self._taken in self._drops:
            self._priority[enabled[best].process] = -float(self._taken)
        self._taken += 1
        return best
