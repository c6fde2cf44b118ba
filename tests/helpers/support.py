"""What several test modules need: the gate's scenarios, loaded and checked once per process."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from hypothesis import settings

from racegate.check.checker import Checker, Checkers
from racegate.scenario.files import load
from racegate.scenario.settings import Numerics
from racegate.scenario.spec import OwnScenario

CHECKERS = Checkers()
# `make nightly`: new examples, and all of what CI samples.
IS_NIGHTLY = not settings().derandomize
SCENARIOS = Path(__file__).parents[2] / "scenarios"
# What a reference computes.
JUDGED = tuple(numerics for numerics in Numerics if numerics.is_judged)
NAMES = sorted(path.stem.replace("_", "-") for path in SCENARIOS.glob("*.toml"))
# What the gate runs beside them: scripts that were drawn for pairs of features.
PAIR_NAMES = sorted(path.stem.replace("_", "-") for path in SCENARIOS.glob("pairs/*.toml"))


@cache
def scenario(name: str) -> OwnScenario:
    return load(SCENARIOS / f"{name.replace('-', '_')}.toml")


@cache
def checker(name: str) -> Checker:
    replay = f"racegate run scenarios/{name.replace('-', '_')}.toml"
    return CHECKERS.of(scenario(name), replay=replay)
