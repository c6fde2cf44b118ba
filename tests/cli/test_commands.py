"""What holds for every command: help, completion, errors; and how the gate is told what to run."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup
from typer.testing import CliRunner

import racegate
from racegate.cli.app import COMMANDS, CommandKind, app, main
from racegate.cli.help.examples import EXAMPLES
from racegate.jobs.pools.pool import PoolError
from racegate.scenario.errors import BadInputError
from racegate.targets.common.environment import cache_folder
from repository import ROOT
from support import NAMES, PAIR_NAMES, SCENARIOS


def commands_below(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command, with the words that call it."""
    if isinstance(command, TyperGroup):
        for name, below in command.commands.items():
            yield from commands_below(below, (*words, name))
    else:
        yield words, command


def all_commands() -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, lazy in COMMANDS.items():
        module = import_module(f"racegate.cli.{lazy.module}")
        yield from commands_below(typer.main.get_command(getattr(module, lazy.app)), (name,))


GROUPS = {"faults": ("list", "matrix", "mutate", "effort", "halffixes"), "scenarios": ("list",)}
CALLS = [
    *((name,) for name in COMMANDS),
    *((group, name) for group, names in GROUPS.items() for name in names),
]


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_every_command_has_help(call: tuple[str, ...], flag: str) -> None:
    result = CliRunner().invoke(app, [*call, flag], prog_name="racegate")
    assert result.exit_code == 0, result.output
    assert f"Usage: racegate {' '.join(call)}" in result.output


def test_every_command_shows_an_example_that_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # options that name a folder make it
    seen = {}
    for words, command in all_commands():
        call = " ".join(words)
        seen[call] = EXAMPLES[call]
        command.make_context(call, shlex.split(EXAMPLES[call]))
        shown = CliRunner().invoke(app, [*words, "--help"], prog_name="racegate").output
        told = " ".join(shown.split())
        assert f"Example: racegate {call} {EXAMPLES[call]}".rstrip() in told
        assert "Exit codes: 0 nothing is wrong, 1 a finding, 2 bad input" in told
    assert seen == EXAMPLES


def test_help_has_its_commands_in_groups() -> None:
    output = CliRunner().invoke(app, ["--help"]).output
    places = [output.index(f"─ {group} ─") for group in CommandKind]
    assert places == sorted(places)
    assert (
        output.index(" vllm ")
        < output.index(f"─ {CommandKind.FINDING} ─")
        < output.index(" explain ")
    )


def test_help_lists_every_command_with_a_sentence() -> None:
    output = " ".join(CliRunner().invoke(app, ["--help"]).output.split())
    for name, command in COMMANDS.items():
        assert name in output
        assert command.summary.split(".")[0][:40] in output


def test_the_version() -> None:
    assert CliRunner().invoke(app, ["--version"]).output == f"racegate {racegate.__version__}\n"


def test_the_package_is_the_command() -> None:
    command = [sys.executable, "-m", "racegate", "--version"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said == f"racegate {racegate.__version__}\n"


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("racegate ga", {"gate"}),
        ("racegate sc", {"scenarios"}),
        ("racegate faults m", {"matrix", "mutate"}),
        ("racegate gate --must", {"--must-fail"}),
        ("racegate gate --explore ", {"eager", "ladder"}),
        ("racegate run finish-and", {"finish-and-condense"}),
        ("racegate run scenarios/finish", {"scenarios/finish_and_condense.toml"}),
        ("racegate run scen", {"scenarios/"}),
        ("racegate vllm run first", {"first-decode-in-moved-row"}),
        ("racegate gate --fault output-copy", {"output-copy-lifetime"}),
        ("racegate docs inter", {"interposer"}),
        ("racegate torch run --gpu h200", {"h200-141g"}),
    ],
)
def test_a_shell_completes(
    words: str, completed: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert _completions(words) == completed


def test_a_shell_completes_releases_that_are_set_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the engine that the command is of, where its environments are kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert _completions("racegate vllm run x --release ") == set()
    (cache_folder("vllm") / "0.33.0").mkdir(parents=True)
    (cache_folder("vllm") / "wheels").mkdir()
    (cache_folder("sglang") / "0.5.13").mkdir(parents=True)
    assert _completions("racegate vllm run x --release ") == {"0.33.0"}
    assert _completions("racegate sglang gate --release 0") == {"0.5.13"}


def _completions(words: str) -> set[str]:
    env = {
        "_RACEGATE_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }
    result = CliRunner().invoke(app, [], prog_name="racegate", env=env)
    return set(result.output.split())


def test_a_command_that_is_none_is_answered_with_what_is_near() -> None:
    result = CliRunner().invoke(app, ["gat"])
    assert result.exit_code == 2
    assert "'gate'" in result.output


@pytest.mark.parametrize(
    ("error", "code"), [(BadInputError("no such thing"), 2), (PoolError("worker 1 is gone"), 3)]
)
def test_an_error_is_a_line_and_a_code(
    error: Exception,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fails() -> None:
        raise error

    monkeypatch.setattr("racegate.cli.scenarios.loaded_scripts", lambda paths: fails())
    monkeypatch.setattr(sys, "argv", ["racegate", "scenarios", "list"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == code
    assert capsys.readouterr().err == f"racegate: {error}\n"


class TestGateSelection:
    def gate(self, *arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(app, ["gate", "--scenarios", str(SCENARIOS), *arguments])
        return result.exit_code, result.stderr if result.exit_code == 2 else result.stdout

    def listed(self, *arguments: str) -> list[dict[str, str]]:
        code, output = self.gate("--list", "--json", "-", *arguments)
        assert code == 0
        found: list[dict[str, str]] = json.loads(output)
        return found

    def test_list_says_what_would_run_and_runs_nothing(self) -> None:
        witnesses = SCENARIOS / "witnesses"
        found = self.listed("--must-fail", str(witnesses))
        scripts = sorted(entry["name"] for entry in found if entry["kind"] == "scenario")
        assert scripts == sorted([*NAMES, *PAIR_NAMES])
        names = [entry["name"] for entry in found if entry["kind"] == "witness"]
        assert sorted(names) == sorted(path.name for path in witnesses.glob("*.json"))
        assert all(Path(entry["file"]).exists() for entry in found)
        code, output = self.gate("--list")
        assert code == 0
        assert all(name in output for name in scripts)

    def test_an_expression_selects_what_runs(self) -> None:
        expression = "three-row or (stop and token)"
        names = {entry["name"] for entry in self.listed("-k", expression)}
        assert names == {"three-row-cycle", "stop-token"}
        code, output = self.gate("-k", expression, "--json", "-")
        assert code == 0
        gate = json.loads(output)
        assert {run["scenario"] for run in gate["scenarios"]} == names
        assert gate["selfcheck"]["canaries_found"] == gate["selfcheck"]["canaries"]

    @pytest.mark.parametrize(
        ("expression", "said"),
        [("three-rov", "near it: three-row-cycle"), ("three and", "there should be a word")],
    )
    def test_what_selects_nothing_is_bad_input(self, expression: str, said: str) -> None:
        code, output = self.gate("-k", expression)
        assert code == 2
        assert said in output


@pytest.mark.parametrize(
    "arguments",
    [("--help",), ("gate", "--help"), ("scenarios", "list"), ("scenarios", "list", "--json", "-")],
    ids=" ".join,
)
def test_a_reader_that_is_gone_is_no_finding(arguments: tuple[str, ...]) -> None:
    there, here = os.pipe()
    os.close(there)
    command = [sys.executable, "-c", "from racegate.cli.start import main; main()", *arguments]
    with os.fdopen(here, "w") as unread:
        result = subprocess.run(
            command, stdout=unread, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (result.returncode, result.stderr) == (141, "")
