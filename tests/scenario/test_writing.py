"""A scenario that is written down is the same when it is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from racegate.explore.generate import generate, seeded
from racegate.scenario.files import load, parse
from racegate.scenario.writing import toml_of
from support import SCENARIOS


@pytest.mark.parametrize("seed", range(40))
def test_a_drawn_scenario_comes_back(seed: int) -> None:
    scenario = generate(seeded(seed, 0), name=f"generated-{seed}-0")
    assert parse(toml_of(scenario), source="written", folder=Path()) == scenario


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.toml"))[::8], ids=lambda path: path.stem)
def test_a_script_comes_back_with_all_that_was_drawn_for_it(path: Path) -> None:
    scenario = load(path)
    assert parse(toml_of(scenario), source="written", folder=Path()) == scenario


def test_defaults_are_left_out_for_those_who_do_not_know_them() -> None:
    text = toml_of(load(SCENARIOS / "finish_and_condense.toml"))
    assert "steps_max" not in text and "temperature" not in text
