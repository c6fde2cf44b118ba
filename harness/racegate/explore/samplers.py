"""Samplers: random schedules, seeded. A portfolio, because none wins everywhere (figures in Zhao et
al., ASPLOS 2025, and Wolff et al., ASPLOS 2024).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from random import Random

from racegate.device.stepping import Step, Stepper, conflict


class SamplerKind(StrEnum):
    POS = "pos"
    PCT = "pct"
    SURW = "surw"
    RANDOM = "random"


class RandomStepper:
    """Uniform random walk over the enabled steps."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def choose(self, enabled: Sequence[Step]) -> int:
        return self._random.randrange(len(enabled)) if len(enabled) > 1 else 0


class PosStepper:
    """Partial order sampling (Yuan, Yang and Gu, CAV 2018).

    Every step has a random priority; the highest goes first, and steps that conflict with it draw
    anew.
    """

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._priority: dict[tuple[int, int], float] = {}

    def choose(self, enabled: Sequence[Step]) -> int:
        if len(enabled) == 1:
            return 0
        best = max(range(len(enabled)), key=lambda index: self._of(enabled[index]))
        chosen = enabled[best]
        for step in enabled:
            if step is not chosen and conflict(step, chosen):
                self._priority.pop((step.process, step.ordinal), None)
        return best

    def _of(self, step: Step) -> float:
        key = (step.process, step.ordinal)
        if key not in self._priority:
            self._priority[key] = self._random.random()
        return self._priority[key]


class PctStepper:
    """Probabilistic concurrency testing with `depth` (Burckhardt et al., ASPLOS 2010).

    Processes have random priorities; at depth - 1 random steps the running one falls to the bottom.
    """

    def __init__(self, seed: int, *, depth: int, steps: int) -> None:
        self._random = Random(seed)
        self._priority: dict[int, float] = {}
        self._taken = 0
        self._drops = {self._random.randrange(max(1, steps)) for _ in range(depth - 1)}

    def choose(self, enabled: Sequence[Step]) -> int:
        for step in enabled:
            if step.process not in self._priority:
                self._priority[step.process] = 1 + self._random.random()
        best = max(range(len(enabled)), key=lambda i: self._priority[enabled[i].process])
        if self._taken in self._drops:
            self._priority[enabled[best].process] = -float(self._taken)
        self._taken += 1
        return best


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

    def choose(self, enabled: Sequence[Step]) -> int:
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


def make_sampler(
    kind: SamplerKind,
    seed: int,
    *,
    steps: int,
    interesting: frozenset[tuple[int, int]],
    depth: int = 3,
) -> Stepper:
    """A sampler. steps, interesting: from an earlier run of the program."""
    makers: dict[SamplerKind, Callable[[], Stepper]] = {
        SamplerKind.POS: lambda: PosStepper(seed),
        SamplerKind.PCT: lambda: PctStepper(seed, depth=depth, steps=steps),
        SamplerKind.SURW: lambda: SurwStepper(seed, interesting=interesting),
        SamplerKind.RANDOM: lambda: RandomStepper(seed),
    }
    return makers[kind]()
