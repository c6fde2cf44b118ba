"""The samplers by name: a portfolio, because none wins everywhere (figures in Zhao et al., ASPLOS
2025, and Wolff et al., ASPLOS 2024).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from racegate.device.stepping import Stepper
from racegate.explore.samplers.pct import PctStepper
from racegate.explore.samplers.pos import PosStepper
from racegate.explore.samplers.random_walk import RandomStepper
from racegate.explore.samplers.surw import SurwStepper


class SamplerKind(StrEnum):
    """Names of the samplers, in the order in which a search takes turns with them."""

    POS = "pos"
    PCT = "pct"
    SURW = "surw"
    RANDOM = "random"


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
