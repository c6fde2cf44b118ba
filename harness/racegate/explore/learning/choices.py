"""The choices that a scenario is drawn with, recorded; and others like them.

A generator that asks for numbers makes a valid scenario of any numbers: a changed recording needs
no repair (Padhye, Lemieux, Sen, Papadakis and Le Traon, Semantic Fuzzing with Zest, ISSTA 2019).
"""

from __future__ import annotations

from itertools import chain
from random import Random

import msgspec

from racegate.explore.generate import generate
from racegate.explore.swarm import Pick
from racegate.scenario.spec import OwnScenario

Choices = tuple[int, ...]

# Of the numbers behind the first changed one another is changed with this probability: 3 more.
MORE = 0.75


class DrawnScenario(msgspec.Struct, frozen=True, kw_only=True):
    """A scenario, and the choices that it was drawn with."""

    scenario: OwnScenario
    choices: Choices


def drawn(pick: Pick, *, name: str) -> DrawnScenario:
    """A scenario from these picks."""
    taken: list[int] = []

    def noting(count: int) -> int:
        taken.append(pick(count))
        return taken[-1]

    scenario = generate(noting, name=name)
    return DrawnScenario(scenario=scenario, choices=tuple(taken))


def replayed(choices: Choices, further: Pick) -> Pick:
    """Picks these numbers again, brought into the range that is asked for, and then others."""
    left = iter(choices)

    def pick(count: int) -> int:
        value = next(left, None)
        return further(count) if value is None else value % count

    return pick


def mutated(choices: Choices, random: Random) -> Choices:
    """A few of the numbers others; one that decides how many follow changes what those mean."""
    changed = list(choices)
    while True:
        changed[random.randrange(len(changed))] = random.randrange(1 << 16)
        if random.random() >= MORE:
            return tuple(changed)


def crossed(first: Choices, second: Choices, random: Random) -> Choices:
    """The beginning of one, with the end of another."""
    cut = random.randrange(1, min(len(first), len(second)))
    return tuple(chain(first[:cut], second[cut:]))
