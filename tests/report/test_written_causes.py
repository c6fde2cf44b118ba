"""`--out DIR` of every target that is not ours: a witness and a page of each cause, which the red
screen names.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from program_verdicts import finding, verdicts
from racegate.cli.app import app
from racegate.cli.pictures import NAME_LENGTH_MAX, file_name
from racegate.history.exit_code import ExitCode
from racegate.history.finding import Verdict
from racegate.targets.adapters.witness import ADAPTER_WITNESSES
from racegate.targets.program.workflow.witness import PROGRAM_WITNESSES
from racegate.targets.vllm.witness import VLLM_WITNESSES
from real_findings import late_toy
from small_engine import Wait
from small_release import SmallReleases

SCRIPT = """schema = 1
name = "small"
title = "t"
[[requests]]
name = "A"
prompt_len = 1
max_tokens = 1
accepts = [1]
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "small.toml").write_text(SCRIPT)
    monkeypatch.setattr("racegate.cli.foreign.releases.open_release", SmallReleases(Wait.BEHIND))
    return tmp_path


def told(output: str, out: Path) -> None:
    """Every file is named, and the command that shows the witness."""
    pages, witnesses = sorted(out.glob("*.html")), sorted(out.glob("*.witness.json"))
    assert pages and witnesses
    for page in pages:
        assert f"page: {page}" in output
        assert page.read_text().count("<h1>") == 1
    for witness in witnesses:
        assert f"racegate replay {witness}" in output
        assert witness.with_name(witness.name.replace(".witness.json", ".html")) in pages


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_gate_of_a_release_writes_each_cause(engine: str) -> None:
    words = [engine, "gate", "--release", "1.0", "--scenarios", "s", "--log", "log"]
    done = CliRunner().invoke(app, [*words, "--out", "found"])
    assert done.exit_code == ExitCode.FINDING, done.output
    told(done.stdout, Path("found"))
    page = next(Path("found").glob("wrong-counts.cpu-*.html")).read_text()
    for shown in ("step 1: count: 4 used, 1 true", "passes", "goes wrong", "small, "):
        assert shown in page
    if engine == "vllm":
        (file,) = Path("found").glob("wrong-counts.cpu-*.witness.json")
        assert VLLM_WITNESSES.load(file).known_as.startswith("wrong/counts.cpu/")


def test_a_calm_release_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("racegate.cli.foreign.releases.open_release", SmallReleases(Wait.BEFORE))
    words = ["vllm", "gate", "--release", "1.0", "--scenarios", "s", "--log", "log"]
    done = CliRunner().invoke(app, [*words, "--out", "found"])
    assert (done.exit_code, list(Path("found").iterdir())) == (0, []), done.output


def test_a_gate_of_an_adapter_draws_its_own_run(folder: Path) -> None:
    """With rows and requests, and the eager run beside the one that goes wrong."""
    toy = late_toy(folder)
    (folder / "toy.toml").rename(folder / "s" / "small.toml")
    words = ["adapter", "gate", "--scenarios", "s", "--out", "found", "--", *toy]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == ExitCode.FINDING, done.output
    told(done.stdout, Path("found"))
    (file,) = Path("found").glob("*.witness.json")
    assert ADAPTER_WITNESSES.load(file).holds
    page = file.with_name(file.name.replace(".witness.json", ".html")).read_text()
    for shown in ("Race on count", "passes", "goes wrong", "lands: d2h:count@", "request Z"):
        assert shown in page, shown


def test_a_program_has_a_page_and_a_witness_of_each_missing_edge(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two findings that one edge orders are one cause, and one that nobody ran has no witness."""
    same = [msgspec.structs.replace(finding(one * 12), cause="the same") for one in "ab"]
    found = verdicts(*same, verdict=Verdict.DIVERGENT)
    command = "racegate.cli.foreign.torch"
    monkeypatch.setattr(f"{command}.open_device", lambda *given, **options: nullcontext())
    monkeypatch.setattr(f"{command}.judge_on", lambda *given, **options: found)
    Path("x.py").write_text("")
    done = CliRunner().invoke(app, ["torch", "run", "--out", "found", "x.py"])
    assert done.exit_code == ExitCode.FINDING, done.output
    (page,), (witness,) = Path("found").glob("*.html"), Path("found").glob("*.json")
    assert f"  file    page: {page}" in done.stderr
    assert f"  file    racegate replay {witness}" in done.stderr
    assert PROGRAM_WITNESSES.load(witness).signature == "a" * 12
    assert "1 more finding of the same cause" in page.read_text()
    alone = msgspec.structs.replace(found, search=None)
    monkeypatch.setattr(f"{command}.judge_on", lambda *given, **options: alone)
    CliRunner().invoke(app, ["torch", "run", "--out", "alone", "x.py"])
    assert [path.suffix for path in Path("alone").iterdir()] == [".html"]


def test_long_signatures_have_files_of_their_own() -> None:
    one, other = f"wrong/{'x' * 200}/a", f"wrong/{'x' * 200}/b"
    assert file_name(one) != file_name(other)
    assert len(file_name(one)) <= NAME_LENGTH_MAX + 9
    assert file_name("wrong/a b/c") == "wrong-a-b-c"
