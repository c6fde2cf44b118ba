"""What a new user asks first: does it work here, and how does a scenario begin."""

from __future__ import annotations

import json
import os
import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import jsonschema
import pytest
from typer.testing import CliRunner

import racegate
from numpy_backend import numpy_backend
from racegate.check.selfcheck import SelfCheck
from racegate.cli.app import app
from racegate.cli.look import doctor
from racegate.cli.options import fail
from racegate.interpose.errors import BadInput
from racegate.report.published.schema import schema_text
from racegate.scenario.files import scenario_paths, script_file
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


def test_the_doctor_says_what_is_in_c(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RACEGATE_COMPILED", raising=False)
    assert (
        "ok compiled core kernels, checkpoints in C, compiled here"
        in looked_at(monkeypatch, canaries_found=3)[1]
    )
    monkeypatch.setenv("RACEGATE_COMPILED", "0")
    code, said = looked_at(monkeypatch, canaries_found=3)
    assert code == 0
    assert "compiled core kernels in Python, which is slower: RACEGATE_COMPILED=0" in said


def test_an_option_refuses_the_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the command and of whatever it starts."""
    monkeypatch.setenv("RACEGATE_COMPILED", "1")
    monkeypatch.setattr(doctor, "plant_canaries", lambda look: SelfCheck())
    done = CliRunner().invoke(app, ["--no-core", "doctor"])
    assert "checkpoints in Python, which is slower: RACEGATE_COMPILED=0" in " ".join(
        done.output.split()
    )
    assert os.environ["RACEGATE_COMPILED"] == "0"


def test_canaries_that_are_lost_are_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    code, said = looked_at(monkeypatch, canaries_found=2)
    assert code == 3
    assert "2 of 3 planted faults found to do: install racegate anew: canary lost" in said


def test_an_extra_that_is_missing_is_named_with_what_it_is_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = ["numpy>=2.2", "redis>=6; extra == 'campaign'", "racegate[torch]; extra == 'gpu'"]
    monkeypatch.setattr(doctor, "requires", lambda name: found)
    monkeypatch.setattr(doctor, "version", lambda name: absent(name) if name == "redis" else "1")
    code, said = looked_at(monkeypatch, canaries_found=3)
    assert code == 0
    missing = "absent campaigns of several machines redis missing to do: "
    assert f"{missing}pip install 'racegate[campaign]'" in said
    assert "numpy 1" in said


def absent(name: str) -> str:
    raise PackageNotFoundError(name)


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


def test_a_refused_name_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(app, ["new", "scenario", "Bad Name"]).exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_a_script_is_run_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["run", "finish-and-condense", "--json", "-"])
    assert json.loads(done.stdout)["scenario"] == "finish-and-condense"
    fault = ["--fault", "accepted-copy-after-row-move"]
    done = CliRunner().invoke(app, ["run", "finish-and-condense", *fault])
    assert done.exit_code == 1
    assert "replay: racegate run finish-and-condense --fault" in done.stdout
    near = CliRunner().invoke(app, ["ops", "finish-and-condens"])
    assert near.exit_code == 2
    assert "near it: finish-and-condense" in near.stderr


def test_a_script_of_ones_own_comes_before_a_shipped_one_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    mine = Path("scenarios", "stop_token.toml")
    mine.parent.mkdir()
    mine.touch()
    assert script_file(Path("stop-token")) == mine
    assert script_file(Path("prefix-hit"), "vllm") == SCENARIOS / "vllm" / "prefix_hit.toml"
    assert script_file(Path("gone.toml")) == Path("gone.toml")


@pytest.mark.parametrize("command", ["faults effort", "faults matrix", "soak", "adapter gate"])
def test_scripts_come_with_racegate_where_a_folder_is_asked_for(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a GPU or an engine the commands end, but not for want of scripts."""
    monkeypatch.chdir(tmp_path)
    for module in (
        "racegate.cli.faults",
        "racegate.cli.foreign.adapter",
        "racegate.cli.measure.soak",
    ):
        monkeypatch.setattr(f"{module}.folder_of_scripts", lambda given: fail(f"from {given}"))
    words = [*command.split(), *(["--", "true"] if "adapter" in command else [])]
    assert CliRunner().invoke(app, words).stderr.endswith("racegate: from None\n")


def test_documents_are_listed_shown_and_named_when_there_is_none() -> None:
    listed = CliRunner().invoke(app, ["docs"]).stdout.splitlines()
    assert listed[0].split() == ["readme", "racegate"]
    assert {line.split()[0] for line in listed[1:-2]} == {
        path.stem for path in (ROOT / "docs").glob("*.md")
    }
    shown = CliRunner().invoke(app, ["docs", "bring-your-own-runner"]).stdout
    assert shown == (ROOT / "docs" / "bring_your_own_runner.md").read_text()
    none = CliRunner().invoke(app, ["docs", "gat"])
    assert none.exit_code == 2
    assert "no page 'gat'; near it: gate," in none.stderr


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
