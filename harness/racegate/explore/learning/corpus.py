"""A corpus: scenarios that reached what few others did, and which of them to draw from next.

A behaviour is aimed at the more often the fewer runs had it; then one of the scenarios that had it
is changed, or crossed over with one that had another. What is rare is where the work goes, as with
rare branches (Lemieux and Sen, FairFuzz, ASE 2018).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from itertools import accumulate
from random import Random

import msgspec

from racegate.explore.generate import seeded
from racegate.explore.learning.behaviour import Behaviour
from racegate.explore.learning.choices import (
    Choices,
    DrawnScenario,
    crossed,
    drawn,
    mutated,
    replayed,
)

# Scenarios that are kept for each behaviour: the first ones, while it is rare.
HOLDERS_MAX = 8
# Of so many scenarios one is drawn as if nothing had been learned.
FRESH = 4
# Of so many others one is crossed over before it is changed.
CROSSED = 4


class Energy(StrEnum):
    """Which scenarios of a corpus are drawn from.

    RARE: those that reached what few others did; EVEN: all alike
    """

    RARE = "rare"
    EVEN = "even"


class TriedScenario(msgspec.Struct, frozen=True, kw_only=True):
    """A scenario that was run. behaviours: what it reached"""

    choices: Choices
    behaviours: frozenset[Behaviour]


class Corpus:
    """What was learned from the scenarios of a seed so far."""

    def __init__(self, seed: int, energy: Energy = Energy.RARE) -> None:
        self._seed = seed
        self._energy = energy
        self._counts: Counter[Behaviour] = Counter()
        self._holders: dict[Behaviour, list[Choices]] = {}
        self._kept: list[Choices] = []
        self._targets: list[Behaviour] = []
        self._weights: list[float] = []

    @property
    def reached(self) -> int:
        """Different behaviours."""
        return len(self._counts)

    def learn(self, tried: Iterable[TriedScenario]) -> None:
        """Takes in a round of scenarios, in their order."""
        for one in tried:
            is_kept = False
            for behaviour in one.behaviours:
                self._counts[behaviour] += 1
                holders = self._holders.setdefault(behaviour, [])
                if len(holders) < HOLDERS_MAX:
                    holders.append(one.choices)
                    is_kept = True
            if is_kept:
                self._kept.append(one.choices)
        # Sets have no order of their own.
        self._targets = sorted(self._counts)
        self._weights = list(accumulate(1 / self._counts[one] for one in self._targets))

    def draw(self, index: int, *, name: str) -> DrawnScenario:
        """The scenario of an index, which depends on the seed and on what was learned only. Some
        are those that `generate` makes of the seed and the index.
        """
        fresh = seeded(self._seed, index)
        random = Random(f"{self._seed}/{index}/learned")
        if not self._kept or random.randrange(FRESH) == 0:
            return drawn(fresh, name=name)
        choices = self._parent(random)
        if random.randrange(CROSSED) == 0:
            choices = crossed(choices, self._parent(random), random)
        return drawn(replayed(mutated(choices, random), fresh), name=name)

    def _parent(self, random: Random) -> Choices:
        if self._energy is Energy.EVEN:
            return random.choice(self._kept)
        (target,) = random.choices(self._targets, cum_weights=self._weights)
        return random.choice(self._holders[target])
