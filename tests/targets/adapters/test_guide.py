"""The guide of runners: its commands print what it shows, and its files are the examples."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from typer.testing import CliRunner

from racegate.cli.app import app
from racegate.history.edge import Edge
from racegate.history.observe import Boundary
from racegate.targets.adapters.answers import FINISHES
from racegate.targets.adapters.wire import (
    EventKind,
    HelloAnswer,
    HistoryLine,
    Offer,
    Plant,
    RanAnswer,
)
from repository import ROOT

PAGE = ROOT / "docs" / "bring_your_own_runner.md"
EXAMPLES = ROOT / "docs" / "examples"
SHOWN = re.compile(r"^```console\n\$ (racegate .+)\n((?:.*\n)*?)```$", re.M)
FILES = re.compile(r"^<!-- file: (\S+) -->\n\n```python\n((?:.*\n)*?)```$", re.M)
RUNNER_LINES_MAX = 60


def printed(command: str) -> str:
    """What a command prints, without blanks at line ends, and its exit code."""
    result = CliRunner().invoke(app, shlex.split(command)[1:])
    lines = [line.rstrip() for line in result.stdout.splitlines()]
    return "\n".join([*lines, f"[{result.exit_code}]"]) + "\n"


# A long command is printed on one line, and shown with a break that a shell takes as well.
BREAK = " \\\n    "
COMMANDS = dict(SHOWN.findall(PAGE.read_text(encoding="utf-8").replace(BREAK, " ")))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_prints_what_is_shown(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES)
    python = Path(sys.executable).parent
    monkeypatch.setenv("PATH", f"{python}{os.pathsep}{os.environ['PATH']}")
    assert printed(command) == COMMANDS[command]


def test_every_command_is_shown_with_what_it_prints() -> None:
    assert len(COMMANDS) == PAGE.read_text(encoding="utf-8").count("```console") == 7


@pytest.mark.parametrize("name", ["toy_runner.py", "toy_adapter.py"])
def test_the_example_is_shown_whole(name: str) -> None:
    shown = dict(FILES.findall(PAGE.read_text(encoding="utf-8")))
    assert shown[name] == (EXAMPLES / name).read_text(encoding="utf-8")


def test_the_runner_is_small() -> None:
    lines = (EXAMPLES / "toy_runner.py").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= RUNNER_LINES_MAX


def test_the_example_needs_only_python() -> None:
    """Its environment has no racegate."""
    for path in EXAMPLES.glob("toy_*.py"):
        imported = re.findall(r"^(?:import|from) (\w+)", path.read_text(encoding="utf-8"), re.M)
        assert set(imported) <= {"json", "os", "sys", "toy_runner"}


def test_the_page_names_every_field() -> None:
    """Also what a field may say, where that is a closed list."""
    text = re.sub(r"^```.*?^```$", "", PAGE.read_text(encoding="utf-8"), flags=re.M | re.S)
    words = set(re.findall(r"[a-z_]+", " ".join(re.findall(r"`[^`]+`", text))))
    for kind in (HelloAnswer, RanAnswer, Edge, *get_args(HistoryLine)):
        fields = {field.encode_name for field in msgspec.structs.fields(kind)}
        assert fields - {"to"} <= words, kind
    plants = {str(plant.__struct_config__.tag) for plant in get_args(Plant)}
    assert {*Offer, *EventKind, *Boundary, *FINISHES, *plants} <= words


def test_a_replay_command_shows_the_finding_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES)
    command = "adapter run toy.toml --plant drop_edge:count-landed --json - --"
    engine = [sys.executable, "toy_adapter.py", "plain", "holds"]
    found = json.loads(CliRunner().invoke(app, [*command.split(), *engine]).stdout)
    replay = shlex.split(found["findings"][-1]["replay"])[1:]
    assert "--hold" in replay
    again = CliRunner().invoke(app, [*replay[:2], "--json", "-", *replay[2:]])
    assert again.exit_code == 1
    shown = json.loads(again.stdout)
    assert (shown["verdict"], shown["holds"]) == (found["verdict"], found["holds"])
    signatures = [[finding["signature"] for finding in one["findings"]] for one in (found, shown)]
    assert signatures[0] == signatures[1]
    assert shown["findings"][-1] == found["findings"][-1]


START = ROOT / "docs" / "start_own_runner.md"
# What each command of the page ends with, in its order, in an empty folder.
STARTED = {
    "racegate demo": 0,
    "racegate docs --examples .": 0,
    "racegate adapter check -- python toy_adapter.py plain holds": 0,
    "racegate adapter run toy.toml --plant drop_edge:count-landed -- python toy_adapter.py plain "
    "holds": 1,
    "racegate run finish-and-condense --fault accepted-copy-after-row-move --explore ladder": 1,
    "racegate adapter gate --scenarios . --junit junit.xml --sarif racegate.sarif -- python "
    "toy_adapter.py plain holds": 0,
}


def test_the_page_to_start_with_leads_to_a_red_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a stranger does it: command by command, and then the wait is taken out."""
    monkeypatch.chdir(tmp_path)
    python = Path(sys.executable).parent
    monkeypatch.setenv("PATH", f"{python}{os.pathsep}{os.environ['PATH']}")
    lines = re.findall(r"^    (racegate [^#\n]+)", START.read_text(encoding="utf-8"), re.M)
    assert [line.strip() for line in lines] == list(STARTED)
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "some.toml").write_text("")
    for command, code in STARTED.items():
        done = CliRunner().invoke(app, shlex.split(command)[1:])
        assert done.exit_code == code, done.output
    assert ".venv" not in done.stderr, "an environment is no folder of scripts"
    runner = tmp_path / "toy_runner.py"
    wait = '        self.device.wait("count-landed", "count")\n'
    text = runner.read_text()
    assert wait in text
    runner.write_text(text.replace(wait, ""))
    red = CliRunner().invoke(app, shlex.split(command)[1:])
    assert red.exit_code == 1, red.output
    assert "1 DIVERGENT loss/delivered" in red.stdout
    assert 'tests="1" errors="0" failures="1"' in (tmp_path / "junit.xml").read_text()
