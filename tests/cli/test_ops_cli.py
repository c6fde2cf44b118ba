"""The command ops, and what `run` says of a hold that matched nothing."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from racegate.cli.app import app

FINISH = str(Path(__file__).parents[2] / "scenarios" / "finish_and_condense.toml")
FAULT = "accepted-copy-after-row-move"


def test_ops_in_tables() -> None:
    result = CliRunner().invoke(app, ["ops", FINISH, "--fault", FAULT])
    assert result.exit_code == 0, result.output
    for said in (
        "d2h:valid_count@STEP",
        "host:condense@STEP",
        "valid-count-landed",
        f"racegate run {FINISH} --fault {FAULT} --hold '...'",
        "--hold 'd2h:accepted_counts@3 until host:condense@4'",
    ):
        assert said in result.stdout.replace("\n", ""), said


def test_ops_as_json() -> None:
    result = CliRunner().invoke(app, ["ops", FINISH, "--json", "-"])
    found = json.loads(result.stdout)
    names = {entry["name"] for entry in found["operations"]}
    assert {"d2h:valid_count@3", "kernel:embed@0"} <= names
    assert {"host:condense@4", "kernel:embed@0"} <= {point["name"] for point in found["points"]}
    assert {edge["name"] for edge in found["edges"]} >= {"valid-count-landed"}
    assert found["aliases"]["C.0"] >= 0
    assert found["holds"]


def test_a_hold_that_matched_nothing_says_why() -> None:
    result = CliRunner().invoke(app, ["run", FINISH, "--hold", "d2h:valid_cunt@3 until forced"])
    assert result.exit_code == 4
    said = " ".join(result.stdout.split())
    assert "there is no operation 'd2h:valid_cunt' in this run; near it: d2h:valid_count, " in said
