"""What nobody may overlook: a closed output, a full disk, an option given twice, unread scripts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from racegate.cli.app import app
from support import SCENARIOS

COMMAND = [sys.executable, "-m", "racegate"]
SCRIPT = Path(SCENARIOS, "finish_and_condense.toml")


@pytest.mark.parametrize("words", [["--version"], ["scenarios", "list"], ["run", str(SCRIPT)]])
def test_with_standard_output_closed_nothing_passes(words: list[str]) -> None:
    done = subprocess.run(
        [*COMMAND, *words], preexec_fn=lambda: os.close(1), stderr=subprocess.PIPE, text=True
    )
    assert done.returncode == 141
    assert "standard output is closed" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("words", [["--version"], ["run", str(SCRIPT)]])
def test_a_full_disk_is_named(words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*COMMAND, *words], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 3
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("options", [(), ("--json", "-")])
def test_what_was_found_is_shown_where_standard_output_has_no_room(options: tuple[str]) -> None:
    words = ["run", str(SCRIPT), "--fault", "accepted-copy-after-row-move", *options]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*COMMAND, *words], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 3
    assert "conflict/accepted_counts_cpu/d2h:accepted_counts/host:condense" in done.stderr
    assert "cannot write standard output: No space left on device" in done.stderr


def test_an_option_given_twice_is_refused() -> None:
    result = CliRunner().invoke(app, ["run", str(SCRIPT), "--seed", "1", "--seed", "2"])
    assert result.exit_code == 2
    assert "--seed is given 2 times" in result.stderr


def test_an_option_that_is_a_list_may_be_repeated() -> None:
    holds = ("d2h:accepted_counts@3 until forced", "d2h:accepted_counts@4 until forced")
    words = [word for hold in holds for word in ("--hold", hold)]
    result = CliRunner().invoke(app, ["run", str(SCRIPT), *words])
    assert result.exit_code in (0, 4), result.output


def test_options_of_a_group_of_commands_are_counted_too() -> None:
    result = CliRunner().invoke(app, ["faults", "list", "--json", "-", "--json", "-"])
    assert result.exit_code == 2
    assert "--json is given 2 times" in result.stderr


def test_scripts_in_folders_below_are_named(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    shutil.copy(SCRIPT, tmp_path)
    shutil.copy(Path(SCENARIOS, "length_limit.toml"), tmp_path / "below")
    result = CliRunner().invoke(app, ["scenarios", "list", "--scenarios", str(tmp_path)])
    assert f"not read: 1 script in {tmp_path / 'below'}" in result.stderr
    assert "length-limit" not in result.stdout


def test_two_scripts_of_one_name_are_refused(tmp_path: Path) -> None:
    for name in ("one.toml", "two.toml"):
        shutil.copy(SCRIPT, tmp_path / name)
    result = CliRunner().invoke(app, ["gate", "--scenarios", str(tmp_path)])
    assert result.exit_code == 2
    assert "'finish-and-condense' is also in" in result.stderr
