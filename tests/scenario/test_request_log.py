"""Scenarios from a real request log."""

from __future__ import annotations

from pathlib import Path

import pytest

from racegate.scenario.files import explicit
from racegate.scenario.request_log import scenario_file_for
from racegate.scenario.spec import OwnScenario, ScenarioError

LOG = Path(__file__).parents[2] / "scenarios" / "traces" / "azure_conv_2023_200.csv"


def build(path: Path, *, rows: str = "0:4", scale: int = 32, step_ms: int = 500) -> OwnScenario:
    file = scenario_file_for(path, rows=rows, scale=scale, step_ms=step_ms, seed=1)
    return explicit(file, source=str(path), folder=path.parent)


def test_arrivals_become_steps_and_lengths_are_scaled() -> None:
    scenario = build(LOG)
    # 18:15:46.680590 374/44; 18:15:50.995169 396/109; 18:15:51.222467 879/55; 18:15:51.391017 91/16
    assert [request.arrive for request in scenario.requests] == [0, 8, 9, 9]
    assert [len(request.prompt) for request in scenario.requests] == [12, 13, 28, 3]
    assert [request.max_tokens for request in scenario.requests] == [2, 4, 2, 1]
    assert [request.name for request in scenario.requests] == ["r0", "r1", "r2", "r3"]


def test_the_shipped_slice_has_200_rows_with_their_attribution() -> None:
    assert len(LOG.read_text().splitlines()) == 201
    assert "CC-BY 4.0" in (LOG.parent / "README.md").read_text()
    assert len(build(LOG, rows="0:200", scale=64).requests) == 200


@pytest.mark.parametrize("rows", ["4:4", "5:3", "x:y", "-1:3", "1", "0:999"])
def test_bad_row_ranges_are_refused(rows: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        build(LOG, rows=rows)
    assert caught.value.path == "$.trace.rows"


def test_rows_behind_the_end_are_named() -> None:
    with pytest.raises(ScenarioError, match=r"has no rows 200:210"):
        build(LOG, rows="190:210")


def test_lengths_that_do_not_fit_say_which_scale_would(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"use at least \d+"):
        build(LOG, rows="0:60", scale=4)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("A,B\n1,2\n", "has no column TIMESTAMP"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,2\n", "row 0"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,many,2\n", "row 0"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,0,2\n", "at least 1"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46\n", "row 0"),
    ],
)
def test_a_bad_log_names_file_and_row(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "log.csv"
    path.write_text(text)
    with pytest.raises(ScenarioError, match=reason):
        build(path, rows="0:1")


def test_a_missing_log_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="cannot be read"):
        build(tmp_path / "none.csv")
