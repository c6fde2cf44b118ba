"""The workflow file of the guide to a runner's change: a runner of GitHub's actions takes it, and
its commands do what the guide says, on releases that stand for vLLM's: one is too large here.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import Result
from ruamel.yaml import YAML
from typer.testing import CliRunner

from actions import filled, run_script
from racegate.cli.app import app
from racegate.targets.vllm.cell import Cell
from repository import ROOT
from small_engine import Wait
from small_release import SmallReleases, TwoReleases, cached_release

GUIDE = ROOT / "docs" / "gate_a_runner_change.md"
# Says what it was given, a line for each call.
NOTING = '#!/bin/sh\nprintf "%s\\t" "${0##*/}" "$@" >> "$CALLS"; echo >> "$CALLS"\n'


def workflow() -> Any:
    (text,) = re.findall(r"^```yaml\n(jobs:\n.*?)^```", GUIDE.read_text(), re.M | re.S)
    return YAML(typ="safe", pure=True).load(text)


def job() -> Any:
    return workflow()["jobs"]["racegate"]


SETTINGS: list[str] = job()["strategy"]["matrix"]["settings"]


@pytest.fixture
def checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A checkout of vLLM, and the release that the workflow names in the cache directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    cached_release(tmp_path / "cache", "0.33.0")
    Path("vllm").mkdir()
    Path("vllm", "__init__.py").write_text("")
    return tmp_path


def told(setting: str, folder: Path) -> list[list[str]]:
    """What the steps of one job of the matrix call, in a shell, with tools that note it."""
    (folder / "bin").mkdir(exist_ok=True)
    for name in ("pip", "racegate"):
        (folder / "bin" / name).write_text(NOTING)
        (folder / "bin" / name).chmod(0o755)
    env = {"CALLS": str(folder / "calls"), "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    for step in job()["steps"]:
        if "run" in step:
            script = filled(step["run"], {"settings": setting})
            assert run_script(script, env, folder).returncode == 0
    return [line.split("\t")[:-1] for line in (folder / "calls").read_text().splitlines()]


def options_of(setting: str) -> list[str]:
    """Each with its value."""
    return [f"--{option.strip()}" for option in setting.split("--")[1:]]


def run(words: list[str], releases: SmallReleases, monkeypatch: pytest.MonkeyPatch) -> Result:
    monkeypatch.setattr("racegate.cli.foreign.releases.open_release", releases)
    package = "racegate.targets.common.environment.EnginePackage"
    monkeypatch.setattr(f"{package}.set_up", lambda *given, **options: None)
    return CliRunner().invoke(app, words)


def test_it_is_a_workflow() -> None:
    schema = files("check_jsonschema").joinpath("builtin_schemas/vendor/github-workflows.json")
    given = {"on": ["pull_request"], **workflow()}
    jsonschema.validate(given, json.loads(schema.read_text()))


@pytest.mark.parametrize("setting", SETTINGS)
def test_each_job_installs_and_gates_the_checkout_beside_its_base(
    setting: str, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit 0 where the checkout is as its base, 1 and a witness where it has lost a wait."""
    install, *commands = told(setting, checkout)
    assert install == ["pip", "install", "racegate"]
    assert [words[:3] for words in commands] == [
        ["racegate", "vllm", "setup"],
        ["racegate", "vllm", "gate"],
    ]
    codes = {}
    for changed in (Wait.BEFORE, Wait.BEHIND):
        releases = TwoReleases(Wait.BEFORE, changed)
        for _, *words in commands:
            done = run(words, releases, monkeypatch)
            codes[changed, words[1]] = done.exit_code
        cells = [one for one in releases.cells if isinstance(one, Cell)]
        (cell,) = [one for one in cells if one.checkout is not None]
        asked = " ".join(cell.command)
        assert [option for option in options_of(setting) if option not in asked] == []
    assert codes == {
        (Wait.BEFORE, "setup"): 0,
        (Wait.BEFORE, "gate"): 0,
        (Wait.BEHIND, "setup"): 0,
        (Wait.BEHIND, "gate"): 1,
    }, done.output
    assert list(Path("witnesses").iterdir())
    assert "::error" in done.output


def test_what_a_failed_job_uploads_is_what_the_gate_writes() -> None:
    (upload,) = [step for step in job()["steps"] if "upload-artifact" in step.get("uses", "")]
    (gate,) = [step["run"] for step in job()["steps"] if "vllm gate" in step.get("run", "")]
    assert upload["if"] == "failure()"
    words = shlex.split(gate.replace("${{ matrix.settings }}", ""))
    assert words[words.index("--witness") + 1] == upload["with"]["path"]


def test_the_cache_is_of_the_release_that_is_gated() -> None:
    (cache,) = [step["with"] for step in job()["steps"] if "cache@" in step.get("uses", "")]
    released = {
        word
        for step in job()["steps"]
        for word in re.findall(r"--release (\S+)", step.get("run", ""))
    }
    assert released == {cache["key"].removeprefix("racegate-vllm-")}
    assert cache["path"] == "~/.cache/racegate"
