"""`gate -x` judges nothing behind the first finding."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from racegate.cli.app import app
from small_engine import Wait
from small_release import SmallReleases

NAMES = ("first", "second", "third")
SMALL = 'schema = 1\nname = "{}"\ntitle = "t"\n\n[[requests]]\nname = "A"\nprompt_len = 1\n'
SMALL += "max_tokens = 1\naccepts = [1]\n"


def gate(wait: Wait, monkeypatch: pytest.MonkeyPatch, folder: Path, *more: str) -> Result:
    """A gate over three scripts, in which the host waits too late, or in time."""
    monkeypatch.chdir(folder)
    (folder / "scripts").mkdir()
    for name in NAMES:
        Path("scripts", f"{name}.toml").write_text(SMALL.format(name))
    monkeypatch.setattr("racegate.cli.foreign.releases.open_release", SmallReleases(wait))
    command = ["vllm", "gate", "--release", "1.0", "--scenarios", "scripts", "--json", "out.json"]
    return CliRunner().invoke(app, [*command, "--log", "log", "--workers", "1", *more])


def judged() -> list[str]:
    """The scenarios that have a result."""
    return [one["scenario"] for one in json.loads(Path("out.json").read_text())["results"]]


def test_a_finding_ends_the_gate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    done = gate(Wait.BEHIND, monkeypatch, tmp_path, "-x")
    assert done.exit_code == 1 and judged() == ["first"]
    assert "2 scenarios are left: --exitfirst" in done.stderr


@pytest.mark.parametrize(
    ("wait", "more", "code"), [(Wait.BEHIND, (), 1), (Wait.BEFORE, ("--exitfirst",), 0)]
)
def test_else_all_are_judged(
    wait: Wait,
    more: tuple[str, ...],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    done = gate(wait, monkeypatch, tmp_path, *more)
    assert done.exit_code == code and judged() == list(NAMES)


def test_half_a_gate_is_held_against_no_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    done = gate(Wait.BEFORE, monkeypatch, tmp_path, "-x", "--accept", "meant.json", "--reason", "w")
    assert done.exit_code == 2 and "--exitfirst" in done.stderr
