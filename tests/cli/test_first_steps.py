"""What a new user asks first: does it work here, and how does a scenario begin."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import jsonschema
import pytest
from typer.testing import CliRunner

import racegate
from numpy_backend import numpy_backend
from racegate.check.selfcheck import SelfCheck
from racegate.cli.app import app
from racegate.cli.look import doctor
from racegate.interpose.errors import BadInput
from racegate.report.published.schema import schema_text
from racegate.scenario.files import scenario_paths
from racegate.targets.program.doctor import Checkup, Health
from repository import ROOT
from support import SCENARIOS
from sync_driver import SyncDriver

SCHEMA = ROOT / "docs" / "scenario.schema.json"
VALIDATOR = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text()))


def looked_at(monkeypatch: pytest.MonkeyPatch, *, canaries_found: int) -> tuple[int, str]:
    """The command, without the slow parts of looking."""
    check = SelfCheck(canaries=3, canaries_found=canaries_found, problems=("canary lost",))
    gpu = Checkup(subject="GPU", health=Health.ABSENT, said="none", advice="get one")
    monkeypatch.setattr(doctor, "plant_canaries", lambda look: check)
    monkeypatch.setattr(doctor, "check_gpu", lambda: gpu)
    done = CliRunner().invoke(app, ["doctor"])
    return done.exit_code, " ".join(done.output.split())


def test_the_doctor_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    code, said = looked_at(monkeypatch, canaries_found=3)
    assert code == 0
    assert f"racegate {racegate.__version__}" in said
    assert f"{len(scenario_paths(SCENARIOS))} scripts and " in said
    assert "3 of 3 planted faults found" in said
    assert "absent GPU none to do: get one" in said


def test_canaries_that_are_lost_are_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    code, said = looked_at(monkeypatch, canaries_found=2)
    assert code == 3
    assert "2 of 3 planted faults found to do: install racegate anew: canary lost" in said


def test_what_programs_need_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> tuple[str, ...]:
        raise BadInput("no C compiler: install gcc")

    monkeypatch.setattr("racegate.targets.program.doctor.find_compiler", none)
    code, said = looked_at(monkeypatch, canaries_found=3)
    assert code == 0
    assert "they cannot be run to do:" in said


def test_a_hold_is_tried_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = {"gpu": "a GPU", "driver": "1", "cuda": "13"}
    monkeypatch.setattr(doctor, "open_cuda", lambda: SyncDriver(numpy_backend()))
    monkeypatch.setattr(doctor, "gpu_environment", lambda: facts)
    found = doctor.check_gpu()
    assert (found.health, found.said) == (Health.OK, "a GPU, driver 1, CUDA 13: reproduced")


def test_a_new_scenario_is_proved_and_explains_itself(tmp_path: Path) -> None:
    words = ["new", "scenario", "rows-change-hands", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    script = tmp_path / "rows_change_hands.toml"
    assert f"next: racegate run {script}" in done.stderr
    racegate.assert_proved(racegate.load(script))
    first = script.read_text().splitlines()[0]
    assert first == "#:schema ./scenario.schema.json"
    assert (tmp_path / "scenario.schema.json").read_text() == schema_text()
    again = CliRunner().invoke(app, words)
    assert again.exit_code == 2
    assert "is there already" in again.stderr


@pytest.mark.parametrize("name", ["", "../up", "Rows", "a b", "x" * 101, "a\nb", "--", "é"])
def test_a_name_is_one_of_a_file(name: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["new", "scenario", "--out", str(tmp_path), "--", name])
    assert done.exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_the_schema_is_not_stale() -> None:
    stale = f"make it again: python -m racegate.report.published.schema {SCHEMA.relative_to(ROOT)}"
    assert SCHEMA.read_text() == schema_text(), stale


def test_the_schema_takes_every_script() -> None:
    scripts = [*scenario_paths(SCENARIOS), *(SCENARIOS / "controls").glob("*.toml")]
    for script in scripts:
        VALIDATOR.validate(tomllib.loads(script.read_text()))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('name = "A"', 'nome = "A"'),
        ("schema = 1", "schema = 2"),
        ("max_tokens = 9", 'max_tokens = "9"'),
        ("condense_moves", "condense_move"),
    ],
)
def test_the_schema_sees_mistakes(before: str, after: str) -> None:
    text = (SCENARIOS / "finish_and_condense.toml").read_text()
    assert before in text
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate(tomllib.loads(text.replace(before, after)))
