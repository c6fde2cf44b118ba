"""POS: partial order sampling."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from racegate.device.stepping import Transition, conflict


class PosStepper:
    """Partial order sampling (Yuan, Yang and Gu, CAV 2018).

    Every step has a random priority; the highest goes first, and steps that conflict with it draw
    anew.
    """

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._priority: dict[tuple[int, int], float] = {}

    def choose(self, enabled: Sequence[Transition]) -> int:
        if len(enabled) == 1:
            return 0
        best = max(range(len(enabled)), key=lambda index: self._of(enabled[index]))
        chosen = enabled[best]
        for step in enabled:
            if step is not chosen and conflict(step, chosen):
                self._priority.pop((step.process, step.ordinal), None)
        return best

    def _of(self, step: Transition) -> float:
        key = (step.process, step.ordinal)
        if key not in self._priority:
            self._priority[key] = self._random.random()
        return self._priority[key]
