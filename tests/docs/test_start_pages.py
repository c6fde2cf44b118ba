"""The pages to start with, and the workflow files that they lead to: what they show happens."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from contextlib import nullcontext
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from typer.testing import CliRunner

from actions import document, run_script
from cuda_torch import needs_cuda_torch
from racegate.cli.app import app
from racegate.interpose.outcome import Ending, Outcome
from racegate.targets.program.judge import ProgramVerdict
from repository import ROOT
from small_engine import Wait
from small_release import SmallReleases
from warmed import Warmth, run_command

DOCS = ROOT / "docs"
LOADER = DOCS / "examples" / "loader.py"
# Two screens.
LINES_MAX = 90
# The services' files, with the schema of each.
WORKFLOWS = {"github": "github-workflows", "gitlab": "gitlab-ci", "buildkite": "buildkite"}
JOBS = ("program", "vllm")
# Says what it was given, a line for each call.
NOTING = '#!/bin/sh\nprintf "%s\\t" "$0" "$@" >> "$CALLS"; echo >> "$CALLS"\n'


def workflow(service: str) -> Any:
    return document(f"docs/examples/ci/{service}.yml")


def scripts_of_job(service: str, job: str) -> list[str]:
    """What a job runs, as the service hands it to a shell."""
    given = workflow(service)
    if service == "github":
        return [step["run"] for step in given["jobs"][job]["steps"] if "run" in step]
    if service == "gitlab":
        return list(given[job]["script"])
    (step,) = [step for step in given["steps"] if step["label"] == job]
    return [text.replace("$$", "$") for text in step["commands"]]


def variables_of(service: str) -> dict[str, str]:
    given = workflow(service)
    found: dict[str, str] = given["variables" if service == "gitlab" else "env"]
    return found


@pytest.mark.parametrize("service", WORKFLOWS)
def test_a_workflow_is_valid(service: str) -> None:
    name = f"builtin_schemas/vendor/{WORKFLOWS[service]}.json"
    schema = json.loads(files("check_jsonschema").joinpath(name).read_text())
    jsonschema.validate(workflow(service), schema)


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("service", WORKFLOWS)
def test_a_workflow_runs_as_it_stands(
    service: str, job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a shell, with tools that note what they are told; and then what racegate is told, on a
    program and a release that stand for one.
    """
    calls = tmp_path / "calls"
    (tmp_path / "bin").mkdir()
    for name in ("python", "racegate"):
        (tmp_path / "bin" / name).write_text(NOTING)
        (tmp_path / "bin" / name).chmod(0o755)
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    env = {**variables_of(service), "CALLS": str(calls), "PATH": path}
    for script in scripts_of_job(service, job):
        assert run_script(script, env, tmp_path).returncode == 0
    told = [line.split("\t")[:-1] for line in calls.read_text().splitlines()]
    install, *commands = [[Path(words[0]).name, *words[1:]] for words in told]
    assert install[:4] == ["python", "-m", "pip", "install"]
    assert "racegate @ git+https://example.org/racegate.git" in install
    monkeypatch.chdir(tmp_path)
    codes = [judged(words[1:], monkeypatch) for words in commands]
    assert codes == ([1] if job == "program" else [0, 1])
    for written in ("junit.xml", "racegate.sarif", "race.html"):
        assert Path(written).stat().st_size


def judged(words: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit code of a command of racegate, on what stands for a program and a release."""
    ended = Outcome(ending=Ending.FINISHED)
    found = ProgramVerdict(base=ended, shown=ended, changes=("sum",))
    Path("train.py").write_text("")
    command = "racegate.cli.foreign"
    monkeypatch.setattr(f"{command}.torch.open_device", lambda *given, **options: nullcontext())
    monkeypatch.setattr(f"{command}.torch.judge_on", lambda *given, **options: found)
    monkeypatch.setattr(f"{command}.releases.open_release", SmallReleases(Wait.BEHIND))
    package = "racegate.targets.common.environment.EnginePackage"
    monkeypatch.setattr(f"{package}.set_up", lambda *given, **options: None)
    return CliRunner().invoke(app, words).exit_code


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("program", ("PyTorch program", "racegate torch run --explore")),
        ("runner_change", ("vLLM's runner", "SGLang's scheduler", "racegate vllm gate")),
        ("own_runner", ("runner of your own", "racegate demo")),
    ],
)
def test_the_first_lines_of_readme_have_a_way_for_each(name: str, words: tuple[str, ...]) -> None:
    head = (ROOT / "README.md").read_text().splitlines()[:20]
    (way,) = [line for line in head if f"(docs/start_{name}.md)" in line]
    assert [word for word in words if word not in way] == []


@pytest.mark.parametrize("name", ["program", "runner_change", "own_runner"])
def test_a_start_page_is_short(name: str) -> None:
    page = (DOCS / f"start_{name}.md").read_text()
    assert len(page.splitlines()) <= LINES_MAX
    assert [
        part for part in ("## Install", "## A first finding", "## In CI") if part not in page
    ] == []


@needs_cuda_torch
def test_the_first_finding_of_a_program_and_its_repair(tmp_path: Path) -> None:
    page = (DOCS / "start_program.md").read_text()
    shown = page.partition("$ racegate torch run --explore loader.py\n")[2].partition("```")[0]
    shutil.copy(LOADER, tmp_path)
    words = shlex.split("torch run --explore loader.py")
    done = run_command(*words, cwd=tmp_path, warmth=Warmth.PROGRAMS)
    assert done.returncode == 1, done.stderr
    assert shown in done.stderr.replace(str(tmp_path) + "/", "")
    diff = page.partition("```diff\n")[2].partition("```")[0].splitlines()
    before = "".join(line[1:] + "\n" for line in diff if not line.startswith("+"))
    after = "".join(line[1:] + "\n" for line in diff)
    text = LOADER.read_text()
    assert before in text
    (tmp_path / "loader.py").write_text(text.replace(before, after))
    done = run_command(*words, cwd=tmp_path, warmth=Warmth.PROGRAMS)
    assert (done.returncode, "no conflict in" in done.stderr) == (0, True), done.stderr
