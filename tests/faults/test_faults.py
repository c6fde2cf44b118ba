"""Every seeded fault is found; the ordering ones in the first, eager run; each has a wrong value to
show.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from racegate.engine.state.edges import EDGES
from racegate.faults.catalogue import FAULTS, FaultError, find_fault
from racegate.faults.fault import Fault, FaultKind
from racegate.history.finding import Finding, FindingKind, Verdict
from racegate.history.outcome import RunResult
from racegate.history.schedule import LATE, Schedule, lane_late, parse_schedule
from support import NAMES, checker

ORDERING = [fault for fault in FAULTS if fault.kind is FaultKind.ORDERING]
LOGIC = [fault for fault in FAULTS if fault.kind is FaultKind.LOGIC]
CONTROLS = [fault for fault in FAULTS if fault.kind is FaultKind.CONTROL]

ISSUE_FAULTS = {
    "accepted-read-before-copy",
    "accepted-copy-after-row-move",
    "accepted-double-remap",
    "accepted-not-reset-first-spec",
    "backup-token-inflated-index",
    "correction-partial-fields",
    "correction-wrong-epoch",
    "pinned-input-overwrite",
}


def named(fault: Fault) -> str:
    return fault.name


@cache
def eager_result(scenario: str, fault_name: str) -> RunResult:
    """What is found in the first run; several tests look at it."""
    return checker(scenario).run(fault=find_fault(fault_name))


def first_divergence(scenario: str, fault: Fault, schedule: Schedule) -> Finding | None:
    if schedule == Schedule():
        result = eager_result(scenario, fault.name)
    else:
        result = checker(scenario).run(schedule=schedule, fault=fault)
    kinds = (FindingKind.DIVERGENCE, FindingKind.MISMATCH)
    found = [f for f in result.findings if f.kind in kinds]
    found += [f for f in result.findings if f.kind is FindingKind.PAGE]
    return found[0] if found else None


def pairs(faults: list[Fault]) -> list[Any]:
    return [
        pytest.param(fault, name, id=f"{fault.name}/{name}")
        for fault in faults
        for name in fault.scenarios
    ]


def test_the_catalogue_is_consistent() -> None:
    names = [fault.name for fault in FAULTS]
    assert len(set(names)) == len(names)
    assert set(names) >= ISSUE_FAULTS
    edges = {edge.name for edge in EDGES}
    for fault in FAULTS:
        assert fault.drops <= edges
        assert set(fault.scenarios) <= set(NAMES)
        assert set(fault.holds) <= set(fault.scenarios)
        assert bool(fault.scenarios) == (fault.kind is not FaultKind.CONTROL)


def test_an_unknown_fault_names_those_near_it() -> None:
    with pytest.raises(FaultError, match="near it: accepted-double-remap"):
        find_fault("accepted-double-remp")
    with pytest.raises(FaultError, match="no fault 'zzz'; `racegate faults list` has all"):
        find_fault("zzz")


@pytest.mark.parametrize(("fault", "name"), pairs(ORDERING))
def test_ordering_faults_are_flagged_in_the_first_eager_run(fault: Fault, name: str) -> None:
    result = eager_result(name, fault.name)
    conflicts = [f for f in result.findings if f.kind is FindingKind.CONFLICT]
    assert conflicts, "the ordering oracle must not need the bad timing"
    assert result.verdict in (Verdict.CONFLICT, Verdict.DIVERGENT)
    for finding in conflicts:
        assert finding.buffer and finding.op and finding.other and finding.edge
        assert finding.step is not None
        assert finding.replay.endswith(f"--fault {fault.name}")


@pytest.mark.parametrize("fault", ORDERING, ids=named)
def test_ordering_faults_have_a_schedule_that_shows_the_wrong_value(fault: Fault) -> None:
    name = fault.scenarios[0]
    schedule = parse_schedule(list(fault.holds.get(name, ())))
    result = checker(name).run(schedule=schedule, fault=fault)
    assert result.verdict is Verdict.DIVERGENT
    assert all(hold.realised for hold in result.holds)
    divergence = first_divergence(name, fault, schedule)
    assert divergence is not None
    assert divergence.field == fault.expect
    assert divergence.expected != divergence.actual
    for text in schedule.texts():
        assert f'--hold "{text}"' in divergence.replay


@pytest.mark.parametrize(("fault", "name"), pairs(LOGIC))
def test_logic_faults_diverge_eagerly_and_race_free(fault: Fault, name: str) -> None:
    result = eager_result(name, fault.name)
    assert result.verdict is Verdict.DIVERGENT
    assert result.stats.conflicts == 0


@pytest.mark.parametrize("fault", LOGIC, ids=named)
def test_logic_faults_diverge_first_where_the_catalogue_says(fault: Fault) -> None:
    divergence = first_divergence(fault.scenarios[0], fault, Schedule())
    assert divergence is not None
    assert divergence.field == fault.expect
    assert divergence.step is not None
    assert divergence.request is not None or divergence.kind is FindingKind.MISMATCH


@pytest.mark.parametrize("fault", CONTROLS, ids=named)
@pytest.mark.parametrize("name", NAMES)
def test_controls_are_silent_everywhere(fault: Fault, name: str) -> None:
    for schedule in (Schedule(), LATE):
        assert checker(name).run(schedule=schedule, fault=fault).findings == ()


class TestEarlyAndLateLoseToDifferentHalfFixes:
    """docs/mechanism.md#landings: each half-fix flips the losing order."""

    LATE_COPY = "d2h:accepted_counts@3 until host:condense@4"

    def test_counts_read_by_current_row_lose_when_late(self) -> None:
        fault = find_fault("accepted-copy-after-row-move")
        held = parse_schedule([self.LATE_COPY])
        assert first_divergence("finish-and-condense", fault, held) is not None
        assert first_divergence("finish-and-condense", fault, Schedule()) is None

    def test_counts_read_by_previous_row_lose_when_early(self) -> None:
        fault = find_fault("accepted-double-remap")
        held = parse_schedule(["d2h:accepted_counts@2 until host:rotate@3"])
        assert first_divergence("prefill-to-decode-swap", fault, Schedule()) is not None
        assert first_divergence("prefill-to-decode-swap", fault, held) is None

    def test_landing_between_two_moves_loses_with_both(self) -> None:
        between = parse_schedule(["d2h:accepted_counts@3 until host:condense@4"])
        for name in ("accepted-copy-after-row-move", "accepted-double-remap"):
            assert first_divergence("condense-and-reorder", find_fault(name), between) is not None

    def test_early_and_late_around_two_moves(self) -> None:
        behind = parse_schedule(["d2h:accepted_counts@3 until host:reorder@4"])
        live, remapped = (
            find_fault("accepted-copy-after-row-move"),
            find_fault("accepted-double-remap"),
        )
        assert first_divergence("condense-and-reorder", live, Schedule()) is None
        assert first_divergence("condense-and-reorder", live, behind) is not None
        assert first_divergence("condense-and-reorder", remapped, Schedule()) is not None
        assert first_divergence("condense-and-reorder", remapped, behind) is None

    def test_a_torn_copy_loses_too(self) -> None:
        # Rows 0 to 2 land early; row 3, whose request is condensed into row 1, lands behind the
        # move.
        fault = find_fault("accepted-copy-after-row-move")
        torn = parse_schedule(["d2h:accepted_counts@3[3:] until host:condense@4"])
        assert first_divergence("condense-and-reorder", fault, torn) is not None

    def test_the_correct_engine_does_not_mind(self) -> None:
        for lane in ("compute", "counts", "output"):
            result = checker("condense-and-reorder").run(schedule=lane_late(lane))
            assert result.findings == ()
