"""What several test modules need: the gate's scenarios, loaded and checked once per process."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from hypothesis import settings

from racegate.check.checker import Checker, Checkers
from racegate.history.witness import load_witness
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


@cache
def of_one_rank() -> list[str]:
    """Names of the scenarios that a GPU and captured graphs run: ranks meet on the virtual device
    alone.
    """
    return [name for name in NAMES if scenario(name).engine.ranks == 1]


@cache
def witnesses_of_one_rank() -> list[Path]:
    """As `of_one_rank`, of the witnesses."""
    paths = sorted((SCENARIOS / "witnesses").glob("*.witness.json"))
    return [path for path in paths if load_witness(path).scenario.engine.ranks == 1]
