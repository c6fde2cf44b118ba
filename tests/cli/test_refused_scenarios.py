"""A scenario that a target does not run stands in the verdict of its gate: one rule for all."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from racegate.cli.app import app
from repository import ROOT
from small_engine import Wait
from small_release import SmallReleases

TOY = ROOT / "docs" / "examples" / "toy.toml"
ADAPTER = ("--", sys.executable, str(TOY.with_name("toy_adapter.py")), "plain", "holds")
RELEASE = ("--release", "1.0", "--log", "log")
SMALL = 'schema = 1\nname = "runs"\ntitle = "t"\n\n[[requests]]\nname = "A"\nprompt_len = 1\n'
SMALL += "max_tokens = 1\naccepts = [1]\n"
PREEMPT = '\n[[events]]\nkind = "preempt"\nstep = 2\nrequest = "A"\n'
REFUSED = ("first", "second", "third")

# What stands behind `gate`, and a script that each of the targets runs.
TARGETS = {
    "vllm": (RELEASE, SMALL),
    "sglang": (RELEASE, SMALL),
    "adapter": (ADAPTER, TOY.read_text().replace('name = "toy"', 'name = "runs"')),
}


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A target whose folder has one script that it runs, and three that it refuses."""
    name: str = request.param
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("racegate.cli.foreign.releases.open_release", SmallReleases(Wait.BEFORE))
    text = TARGETS[name][1]
    Path("scripts").mkdir()
    Path("scripts", "runs.toml").write_text(text)
    for refused in REFUSED:
        other = text.replace('name = "runs"', f'name = "{refused}"') + PREEMPT
        Path("scripts", f"{refused}.toml").write_text(other)
    return name


def gate(target: str, *words: str) -> Result:
    command = [target, "gate", "--scenarios", "scripts", "--json", "out.json", *words]
    return CliRunner().invoke(app, [*command, *TARGETS[target][0]])


def test_a_gate_in_which_scenarios_are_refused_is_no_pass(target: str) -> None:
    done = gate(target)
    told = json.loads(Path("out.json").read_text())
    assert (done.exit_code, told["verdict"]) == (4, "INCONCLUSIVE"), done.output
    assert {one["scenario"]: one["verdict"] for one in told["results"]} == {
        "runs": "PROVED",
        **dict.fromkeys(REFUSED, "INCONCLUSIVE"),
    }
    assert "INCONCLUSIVE: 1 scenario, 3 not run (--except NAME leaves one out)" in done.output


def test_what_somebody_leaves_out_by_name_is_said_and_does_not_count(target: str) -> None:
    done = gate(target, *(word for name in REFUSED for word in ("--except", name)))
    assert (done.exit_code, json.loads(Path("out.json").read_text())["verdict"]) == (0, "PROVED")
    assert "not judged: second, left out by --except" in done.output


def test_only_a_scenario_that_is_there_can_be_left_out(target: str) -> None:
    done = gate(target, "--except", "fourth")
    assert done.exit_code == 2
    assert "--except fourth: the folder has no scenario of that name" in done.output


def test_scripts_for_other_settings_are_left_out_and_named_unless_their_folder_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("racegate.cli.foreign.releases.open_release", SmallReleases(Wait.BEFORE))
    folder = Path("scenarios", "vllm")
    folder.mkdir(parents=True)
    text = TARGETS["vllm"][1]
    (folder / "runs.toml").write_text(text)
    (folder / "other.toml").write_text(text.replace('name = "runs"', 'name = "other"') + PREEMPT)
    command = ["vllm", "gate", *TARGETS["vllm"][0]]
    done = CliRunner().invoke(app, command)
    assert (done.exit_code, "not judged: other: it needs" in done.output) == (0, True), done.output
    named = CliRunner().invoke(app, [*command, "--scenarios", str(folder)])
    assert (named.exit_code, "1 not run" in named.output) == (4, True), named.output
