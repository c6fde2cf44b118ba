"""The action and the workflow for GitHub: valid, pinned, and their steps do what they say."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from actions import document, run_script, scripts_of
from repository import ROOT
from support import SCENARIOS

ACTION = ".github/actions/gate/action.yml"
WORKFLOW = ".github/workflows/gate.yml"
EVIDENCE = ".github/workflows/evidence.yml"
WHEELS = ".github/workflows/wheels.yml"
RACEGATE = (
    f'#!/bin/sh\nexec {sys.executable} -c "from racegate.cli.start import main; main()" "$@"\n'
)
# Installs nothing: says what would be.
PYTHON = '#!/bin/sh\necho "python $*" >> "$INSTALLED"\n'


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, str]:
    """A runner's environment, with a racegate that is there and a pip that is not."""
    for name, text in (("racegate", RACEGATE), ("python", PYTHON)):
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    return {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
        "GITHUB_ACTION_PATH": "/actions/racegate/.github/actions/gate",
        "INSTALLED": str(tmp_path / "installed"),
    }


def ran(
    steps: list[dict[str, Any]], inputs: Mapping[str, str], machine: dict[str, str], cwd: Path
) -> list[subprocess.CompletedProcess[str]]:
    """The steps one after another, up to the first that fails."""
    done = []
    for script, env in scripts_of(steps, inputs):
        done.append(run_script(script, {**machine, **env}, cwd))
        if done[-1].returncode:
            break
    return done


@pytest.mark.parametrize(
    ("path", "schema"),
    [
        (ACTION, "github-actions"),
        (WORKFLOW, "github-workflows"),
        (EVIDENCE, "github-workflows"),
        (WHEELS, "github-workflows"),
    ],
)
def test_they_are_valid(path: str, schema: str) -> None:
    text = files("check_jsonschema").joinpath(f"builtin_schemas/vendor/{schema}.json").read_text()
    jsonschema.validate(document(path), json.loads(text))


def test_what_others_made_is_pinned() -> None:
    for path in (ACTION, WORKFLOW, EVIDENCE):
        text = (ROOT / path).read_text()
        used = [line.split()[-1] for line in text.splitlines() if "uses: " in line]
        assert all("@v" in name or name.startswith("./") for name in used), used


def test_the_workflow_gates_this_repository(machine: dict[str, str], tmp_path: Path) -> None:
    """With one scenario and one witness in the place of all."""
    (tmp_path / "scenarios" / "witnesses").mkdir(parents=True)
    witness = "witnesses/accepted-copy-after-row-move.witness.json"
    for name in ("stop_token.toml", witness):
        shutil.copy(SCENARIOS / name, tmp_path / "scenarios" / name)
    done = ran(document(WORKFLOW)["jobs"]["gate"]["steps"], {}, machine, tmp_path)
    assert [one.returncode for one in done] == [0, 0], done[-1].stdout + done[-1].stderr
    assert Path(machine["INSTALLED"]).read_text() == "python -m pip install .\n"
    assert (tmp_path / "summary.md").read_text().startswith("## racegate: PROVED\n")
    reports = {path.name for path in (tmp_path / "racegate-reports").iterdir()}
    assert reports == {"gate.json", "junit.xml", "racegate.sarif"}


def test_the_evidence_is_a_site_of_this_repository(machine: dict[str, str], tmp_path: Path) -> None:
    """The steps run; where there are no reports, the last one says so."""
    steps = document(EVIDENCE)["jobs"]["site"]["steps"]
    done = ran(steps, {}, machine, tmp_path)
    assert done[-1].returncode == 2
    assert "reports: no folder of reports" in done[-1].stderr


def test_the_action_fails_with_a_finding_and_says_where(
    machine: dict[str, str], tmp_path: Path
) -> None:
    action = document(ACTION)
    scripts = tmp_path / "some; touch hacked"  # an input is never part of a script
    scripts.mkdir()
    shutil.copy(SCENARIOS / "finish_and_condense.toml", scripts)
    inputs = {name: said["default"] for name, said in action["inputs"].items()} | {
        "scenarios": scripts.name,
        "arguments": "--fault accepted-copy-after-row-move --workers 1 --explore eager",
    }
    installed, gate = ran(action["runs"]["steps"], inputs, machine, tmp_path)
    assert installed.returncode == 0
    place = machine["GITHUB_ACTION_PATH"] + 3 * "/.."
    assert Path(machine["INSTALLED"]).read_text() == f"python -m pip install {place}\n"
    assert gate.returncode == 1, gate.stderr
    assert "::error file=some; touch hacked/finish_and_condense.toml,title=" in gate.stdout
    assert not (tmp_path / "hacked").exists()
    said = json.loads((tmp_path / "racegate-reports" / "gate.json").read_text())
    assert said["verdict"] == "CONFLICT"
