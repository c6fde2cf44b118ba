"""Random walk: the baseline that the other samplers have to beat."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from racegate.device.stepping import Transition


class RandomStepper:
    """Uniform random walk over the enabled steps."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def choose(self, enabled: Sequence[Transition]) -> int:
        return self._random.randrange(len(enabled)) if len(enabled) > 1 else 0
