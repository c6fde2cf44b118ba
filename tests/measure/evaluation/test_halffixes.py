"""The truth table of the accepted-count designs is measured again and equals the committed one."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from racegate.check.checker import Checker
from racegate.faults.catalogue import FAULTS, VARIANTS, find_fault
from racegate.faults.fault import FaultKind
from racegate.history.finding import Verdict
from racegate.measure.evaluation.truth_table import (
    CellOutcome,
    CountLanding,
    Landed,
    Motion,
    TruthCell,
    measure_table,
    motion_scenario,
)
from racegate.report.measured.halffixes import as_markdown
from racegate.scenario.settings import CacheMode

REPORTS = Path(__file__).parents[3] / "reports" / "faults"
DESIGNS = (
    "counts/early-wait",
    "counts/live-rows",
    "counts/previous-position-gather",
    "counts/device-authoritative",
    "counts/private-snapshot",
)

# docs/mechanism.md#landings, "current row" and "previous row"; between two moves as measured.
WRONG = {
    "counts/live-rows": {(landing, m) for landing in list(CountLanding)[1:] for m in Motion},
    "counts/previous-position-gather": {
        (landing, motion)
        for landing in (CountLanding.EARLY, CountLanding.BETWEEN)
        for motion in (Motion.TWO_CYCLE, Motion.THREE_CYCLE)
    },
}


@pytest.fixture(scope="module")
def cells() -> tuple[TruthCell, ...]:
    return measure_table(on_design=lambda name: None)


def test_the_committed_table_is_the_measured_one(cells: tuple[TruthCell, ...]) -> None:
    committed = json.loads((REPORTS / "halffixes.json").read_text())
    assert committed["cells"] == list(msgspec.to_builtins(cells))
    assert as_markdown(cells) in (REPORTS / "halffixes.md").read_text()


def test_every_combination_is_measured_once(cells: tuple[TruthCell, ...]) -> None:
    seen = {(c.design, c.cache_mode, c.motion, c.landing) for c in cells}
    assert len(seen) == len(cells) == len(DESIGNS) * 2 * len(Motion) * len(CountLanding)
    assert {c.design for c in cells} == set(DESIGNS)


@pytest.mark.parametrize("cache_mode", [CacheMode.NONE, CacheMode.ALIGN])
@pytest.mark.parametrize("design", DESIGNS)
def test_a_design_loses_where_the_mechanism_says(
    design: str, cache_mode: CacheMode, cells: tuple[TruthCell, ...]
) -> None:
    if design == "counts/device-authoritative" and cache_mode is CacheMode.ALIGN:
        return  # out of its place: see the page
    for cell in (c for c in cells if (c.design, c.cache_mode) == (design, cache_mode)):
        is_wrong = (cell.landing, cell.motion) in WRONG.get(design, set())
        assert cell.outcome is (CellOutcome.WRONG if is_wrong else CellOutcome.RIGHT), cell
        assert cell.is_flagged == (design in WRONG)
        assert (cell.field == "inputs.accepted") == is_wrong


def test_a_wait_before_the_moves_excludes_the_late_landings(cells: tuple[TruthCell, ...]) -> None:
    for cell in cells:
        if cell.design == "counts/device-authoritative":
            assert cell.landed is Landed.NO_COPY
        elif cell.design == "counts/early-wait" and cell.landing is not CountLanding.EARLY:
            assert cell.landed is Landed.EXCLUDED
        else:
            assert cell.landed is Landed.AS_WANTED


@pytest.mark.parametrize("cache_mode", [CacheMode.NONE, CacheMode.ALIGN])
@pytest.mark.parametrize("motion", Motion)
def test_the_scripts_move_rows_and_are_proved(motion: Motion, cache_mode: CacheMode) -> None:
    result = Checker(motion_scenario(motion, cache_mode)).run()
    assert result.verdict is Verdict.PROVED
    assert result.stats.row_moves >= 2
    assert result.stats.exercised["zero_draft_rows"] >= 1


def test_variants_are_run_by_name_and_demanded_nowhere() -> None:
    assert all(variant.kind is FaultKind.VARIANT for variant in VARIANTS)
    assert not {variant.name for variant in VARIANTS} & {fault.name for fault in FAULTS}
    for variant in VARIANTS:
        assert find_fault(variant.name) is variant
