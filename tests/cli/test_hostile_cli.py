"""Files and arguments made to hurt, through the command line: bad input, in words that only show.

tests/helpers/hostile_cases.py has the cases, and makes the table of reports/hostile.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hostile_cases import CASES, NASTY, Case, is_unprintable, script
from racegate.cli.app import app

# What hurts only what is shown is taken; the other one is a whole run.
TAKEN = ("listed", "as JSON", "markup, run")
SLOW = ("row 3,000,000 of 60 MB",)


@pytest.mark.parametrize("case", [c for c in CASES if c.name not in SLOW], ids=lambda c: c.name)
def test_it_is_refused_or_shown(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, case.make(tmp_path))
    is_taken = case.name.endswith(TAKEN)
    assert result.exit_code in ((0, 4) if is_taken else (2,)), result.output[:500]
    said = result.stdout + result.stderr
    assert not any(map(is_unprintable, said.replace(str(tmp_path), "")))
    assert len(said) < 20_000
    assert "Error:" not in said and "This is no finding" not in said


def test_markup_in_a_title_is_text(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(script(title="'[/foo] [bold]x :smile:'"))
    result = CliRunner().invoke(app, ["scenarios", "list", "--scenarios", str(tmp_path)])
    assert "[/foo] [bold]x :smile:" in result.stdout


def test_json_escapes_and_means_the_same(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(script(title=json.dumps(NASTY)))
    command = ["scenarios", "list", "--scenarios", str(tmp_path), "--json", "-"]
    shown = CliRunner().invoke(app, command).stdout
    assert json.loads(shown)[0]["title"] == NASTY
    assert "\\u202e" in shown and "\\u009b" in shown


def test_a_name_that_is_wrong_is_answered_with_what_is_near(tmp_path: Path) -> None:
    (tmp_path / "abort_in_flight.toml").write_text(script())
    result = CliRunner().invoke(app, ["run", str(tmp_path / "abort_inflight.toml")])
    assert "near it: abort_in_flight.toml" in result.stderr
    command = ["run", str(tmp_path / "abort_in_flight.toml"), "--fault"]
    result = CliRunner().invoke(app, [*command, "accepted-copy-after-move"])
    assert "near it: accepted-copy-after-row-move, " in result.stderr
    assert "`racegate faults list` has all" in result.stderr


def test_a_page_is_tried_before_anything_is_measured(tmp_path: Path) -> None:
    (tmp_path / "page").mkdir()
    result = CliRunner().invoke(app, ["faults", "effort", "--markdown", str(tmp_path / "page")])
    assert (result.exit_code, "is a folder" in result.stderr) == (2, True)
