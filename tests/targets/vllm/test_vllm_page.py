"""The page of the history, from cells that were written."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import msgspec
from test_vllm_search import SCENARIO
from vllm_page import public, write_page

from racegate.jobs.versions.cells import (
    CellConflict,
    CellReport,
    ScenarioReport,
    read_cell,
    write_cell,
)
from racegate.jobs.versions.engines import scenario_report
from racegate.targets.common.judge import judge
from racegate.targets.common.search import Effect
from racegate.targets.common.sensitivity import Pulse
from racegate.targets.common.wire import Observed
from racegate.targets.vllm.cell import Cell
from racegate.targets.vllm.wire import ModelRunner, StateMode
from small_engine import Served, SmallEngine, Wait

COPY = "d2h input_batch.num_accepted_tokens_cpu_tensor@step"
ALIVE = dict.fromkeys(Observed, Pulse.ALIVE)


def cell(release: str, effect: Effect | None, **fields: object) -> CellReport:
    """One scenario; effect: of its only conflict, None for none."""
    conflict = CellConflict(
        first=COPY, second="host read", is_write=False, effect=effect or Effect.BENIGN, pairs=1,
        landings=2, does=("4 used, 1 true",) if effect is Effect.WRONG else (),
    )  # fmt: skip
    scenario = ScenarioReport(
        verdict="DIVERGENT" if effect is Effect.WRONG else "BENIGN", steps=1, events=1, runs=3,
        is_complete=True, cpu_s=1.0, conflicts=() if effect is None else (conflict,),
    )  # fmt: skip
    known = {"sensitivity": ALIVE, "scenarios": {"small": scenario}, **fields}
    return CellReport(
        release=release, runner=ModelRunner.V1, mode=StateMode.NONE, python="3", **known
    )


def page(tmp_path: Path, *reports: CellReport) -> str:
    (tmp_path / "cells").mkdir()
    for report in reports:
        write_cell(tmp_path / "cells", report)
        assert read_cell(tmp_path / "cells" / report.file) == report
    write_page(tmp_path)
    return (tmp_path / "README.md").read_text()


def test_a_conflict_is_followed_through_the_releases(tmp_path: Path) -> None:
    text = page(
        tmp_path, cell("0.22.1", Effect.WRONG), cell("0.9.2", Effect.BENIGN), cell("0.24.0", None)
    )
    line = next(line for line in text.splitlines() if COPY in line)
    assert "wrong: 0.22.1; benign: 0.9.2 | 4 used, 1 true | 0.24.0 | 0.24.0 | vllm#36013" in line
    assert text.index("| 0.9.2 |") < text.index("| 0.22.1 |") < text.index("| 0.24.0 |")


def test_a_release_that_was_not_searched_says_nothing_of_a_conflict(tmp_path: Path) -> None:
    found = cell("0.24.0", None).scenarios["small"]
    unsearched = msgspec.structs.replace(found, wrong=("1 used, 2 true",))
    text = page(
        tmp_path,
        cell("0.22.1", Effect.WRONG),
        cell("0.24.0", None, scenarios={"small": unsearched}),
        cell("0.25.1", None, scenarios={"other": found}),
    )
    assert "wrong: 0.22.1 | 4 used, 1 true |  |  | vllm#36013" in text
    assert "| 0.24.0 | V1 | none | `small` | 1 used, 2 true |" in text


def test_what_is_dead_and_what_cannot_be_run_is_said(tmp_path: Path) -> None:
    text = page(
        tmp_path,
        cell("0.22.1", None, sensitivity=ALIVE | {Observed.SLOTS: Pulse.DEAD}),
        cell("0.11.2", None, scenarios={}, cannot="it does not start"),
    )
    assert "dead: state slots" in text
    assert "| 0.11.2 | V1 | none | all | it does not start |" in text


def test_a_verdict_is_kept_without_the_counts_of_its_run() -> None:
    judged = judge(
        Served(SmallEngine(Wait.BEHIND)),
        SCENARIO,
        Cell(release="1.0", runner=ModelRunner.V1, mode=StateMode.NONE),
    )
    kept = scenario_report(judged, 1.26)
    assert {one.first for one in kept.conflicts} == {"d2h counts.cpu@_step"}
    assert kept.conflicts[0].does == ("step 1: count: 4 used, 1 true",)
    assert kept.cpu_s == 1.3
    assert msgspec.json.decode(msgspec.json.encode(kept), type=ScenarioReport) == kept


def test_every_conflict_has_a_word_about_the_public() -> None:
    assert public("kernel unheard_of@nowhere") == "none found"


def test_cells_of_a_gpu_are_told_with_their_holds(tmp_path: Path) -> None:
    one = {
        "release": "0.22.1", "runner": "v1", "mode": "none", "torch": "2.11.0+cu130",
        "verdict": "DIVERGENT", "nothing held": [], "held": ["4 used, 1 true"],
        "hold": [["d2h a@b#1", "forced"]],
    }  # fmt: skip
    (tmp_path / "gpu").mkdir()
    found = {"gpu": "NVIDIA H100, 580", "cells": [one]}
    (tmp_path / "gpu" / "cells.json").write_bytes(msgspec.json.encode(found))
    (tmp_path / "cells").mkdir()
    write_page(tmp_path)
    text = (tmp_path / "README.md").read_text()
    assert "NVIDIA H100, driver 580" in text
    assert "| `d2h a@b#1` until `forced` | DIVERGENT | 4 used, 1 true |" in text


def test_a_verdict_without_a_commit_has_a_star(tmp_path: Path) -> None:
    old = cell("0.9.2", Effect.BENIGN)
    one = msgspec.structs.replace(old.scenarios["small"], commit="1234567")
    text = page(tmp_path, old, cell("0.24.0", Effect.BENIGN, scenarios={"small": one}))
    assert r"| BENIGN\*, 3 | all alive |  |" in text
    assert "| BENIGN, 3 | all alive | 1234567 |" in text
