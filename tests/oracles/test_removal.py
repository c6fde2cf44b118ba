"""What each oracle alone can see: switched off, exactly the cells are lost that it alone covers.

The matrix says which those are (reports/faults). While the reference is right, the catalogue needs
the ordering and the stepwise oracle. What only the others see is shown on situations made for it:
the right value of a wrong owner, memory that no step looks at, and a defect that the reference has
too.
"""

from __future__ import annotations

import copy
import dataclasses
from functools import cache
from pathlib import Path

import msgspec
import pytest

from racegate.check.checker import Checker
from racegate.check.judge import Judge
from racegate.engine.rows.input_batch import InputBatch
from racegate.faults.catalogue import FAULTS, find_fault
from racegate.faults.fault import Fault, FaultKind
from racegate.history.finding import ALL_ORACLES, FindingKind, Oracle
from racegate.history.outcome import RunResult
from racegate.history.run import Run
from racegate.measure.evaluation.cells import Look
from racegate.measure.evaluation.kills import timings
from racegate.measure.evaluation.matrix import Matrix, load_matrix
from support import IS_NIGHTLY, checker, scenario

REPORT = Path(__file__).parents[2] / "reports" / "faults" / "matrix.json"
SEEDED = [fault for fault in FAULTS if fault.kind is not FaultKind.CONTROL]
WITHOUT_STEPWISE = ALL_ORACLES - {Oracle.STEPWISE}


@cache
def matrix() -> Matrix:
    return load_matrix(REPORT)


class Judged:
    """A run under any oracles; each set of them is asked once."""

    def __init__(self, judge: Checker, run: Run) -> None:
        self._judge, self._run = judge, run
        self._is_wrong: dict[frozenset[Oracle], bool] = {}

    def is_wrong(self, oracles: frozenset[Oracle]) -> bool:
        if oracles not in self._is_wrong:
            found = self._judge.judge(self._run, oracles=oracles).findings
            self._is_wrong[oracles] = bool(found)
        return self._is_wrong[oracles]


def runs_of(fault: Fault) -> dict[str, Judged]:
    """Every run of a fault that the matrix judges, by its name there."""
    runs = {}
    for name in fault.scenarios:
        for timing, schedule in timings(fault, checker(name)).items():
            run = checker(name).execute(schedule=schedule, fault=fault)
            runs[f"{name}, {timing}"] = Judged(checker(name), run)
    return runs


def lost(runs: dict[str, Judged], off: Oracle, among: frozenset[Oracle]) -> list[str]:
    """Runs of which nothing is left to say when one of several oracles is switched off."""
    return [
        name
        for name, run in runs.items()
        if run.is_wrong(among) and not run.is_wrong(among - {off})
    ]


# In CI the other half than the test of the matrix has, but for what the controls shift.
@pytest.mark.parametrize(
    "fault", SEEDED if IS_NIGHTLY else SEEDED[1::2], ids=lambda fault: fault.name
)
def test_an_oracle_switched_off_loses_exactly_what_it_alone_covers(fault: Fault) -> None:
    found = [row for row in matrix().rows if row.fault == fault.name]
    assert found, f"{fault.name} is not in the committed matrix: run `make matrix`"
    runs = runs_of(fault)
    for oracle in Oracle:
        cell = found[0].oracles[Look(oracle.value)]
        assert lost(runs, oracle, ALL_ORACLES) == list(cell.alone), oracle
        if oracle is not Oracle.STEPWISE:
            covered = list(cell.alone_without_stepwise)
            assert lost(runs, oracle, WITHOUT_STEPWISE) == covered, oracle


@pytest.mark.parametrize("oracle", [Oracle.ORDERING, Oracle.STEPWISE])
def test_the_catalogue_needs_these_oracles(oracle: Oracle) -> None:
    assert matrix().totals.oracles[Look(oracle.value)].runs_alone > 0


@pytest.mark.parametrize("oracle", [Oracle.INVARIANTS, Oracle.LOSSLESSNESS])
def test_these_are_needed_once_the_reference_shares_a_defect(oracle: Oracle) -> None:
    assert matrix().totals.oracles[Look(oracle.value)].runs_alone_without_stepwise > 0


def kinds(result: RunResult) -> set[FindingKind]:
    return {finding.kind for finding in result.findings}


def test_only_the_ordering_oracle_sees_a_race_in_an_eager_run() -> None:
    result = checker("all-rejected-all-accepted").run(fault=find_fault("accepted-read-before-copy"))
    assert kinds(result) == {FindingKind.CONFLICT}


def test_only_the_ownership_oracle_sees_a_wrong_owner_with_the_right_value() -> None:
    # All rows accept the same count, so the wrong row's value is right by luck; the copy has
    # landed, so nothing is unordered.
    script = scenario("two-row-cycle")
    alike = tuple(msgspec.structs.replace(r, accepts=(4,)) for r in script.requests)
    lucky = Checker(msgspec.structs.replace(script, requests=alike))
    run = lucky.execute(fault=find_fault("accepted-snapshot-in-live-rows"))
    assert kinds(lucky.judge(run)) == {FindingKind.OWNERSHIP}
    assert lucky.judge(run, oracles=ALL_ORACLES - {Oracle.OWNERSHIP}).findings == ()


def test_only_the_invariants_see_blocks_in_a_row_that_nobody_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # No step looks at such a row until a graph pads the batch with it.
    monkeypatch.setattr(InputBatch, "_clear", lambda batch, row: None)
    run = checker("finish-and-condense").execute()
    result = checker("finish-and-condense").judge(run)
    assert {finding.signature for finding in result.findings} == {"invariant/I-21"}
    silent = checker("finish-and-condense").judge(run, oracles=ALL_ORACLES - {Oracle.INVARIANTS})
    assert silent.findings == ()


def test_only_the_losslessness_oracle_sees_a_wrong_draw_that_the_reference_makes_too() -> None:
    # Delivered tokens are among the fields of the stepwise oracle: with a right reference it sees
    # whatever this one sees.
    fault = find_fault("row-swap-alias:seed")
    sharing = with_the_defect_in_the_reference(checker("random-rows-change-hands"), fault)
    run = sharing.execute(fault=fault)
    assert kinds(sharing.judge(run)) == {FindingKind.LOSS}
    assert sharing.judge(run, oracles=ALL_ORACLES - {Oracle.LOSSLESSNESS}).findings == ()


def with_the_defect_in_the_reference(right: Checker, fault: Fault) -> Checker:
    """A checker whose reference does, step by step, what the faulty engine does."""
    wrong = copy.copy(right)
    run = right.execute(fault=fault)
    assert run.result is not None
    reference = msgspec.structs.replace(
        right.reference,
        observations=run.observations,
        steps=run.result.steps,
        finished=run.result.finished,
    )
    expected = dataclasses.replace(right._expected, reference=reference)
    wrong._judge = Judge(expected, right._command, device="virtual")
    return wrong


def test_only_the_stepwise_oracle_sees_a_wrong_drafter_input() -> None:
    # Verification is lossless: the delivered tokens are right, only acceptance suffers.
    fault = find_fault("backup-token-inflated-index")
    result = checker("chunked-prefill-backup-token").run(fault=fault)
    assert kinds(result) == {FindingKind.DIVERGENCE}
