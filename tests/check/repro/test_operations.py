"""What a run does, by the names of holds; and why a hold was not realised."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from racegate.check.checker import Checker
from racegate.check.repro.operations import Operations, described, list_operations, useful_holds
from racegate.check.repro.unrealised import in_ranges, why_unrealised, with_reasons
from racegate.faults.catalogue import find_fault
from racegate.history.schedule import parse_schedule
from racegate.history.trace import OpRecord
from racegate.scenario.files import load

SCENARIOS = Path(__file__).parents[3] / "scenarios"
FAULT = "accepted-copy-after-row-move"


@pytest.fixture(scope="module")
def checker() -> Checker:
    return Checker(load(SCENARIOS / "finish_and_condense.toml"))


@pytest.fixture(scope="module")
def operations(checker: Checker) -> Operations:
    return list_operations(checker.subject, None)


def test_they_are_those_of_the_trace(checker: Checker, operations: Operations) -> None:
    events = checker.execute().trace.events
    operated = [event for event in events if isinstance(event, OpRecord)]
    assert [entry.name for entry in operations.entries] == [event.name for event in operated]
    for event, entry in zip(operated, operations.entries, strict=True):
        for named, is_write in ((entry.reads, False), (entry.writes, True)):
            touched = {one.buffer for one in event.accesses if one.is_write is is_write}
            assert set(named) == touched
    ends = [point.name for point in operations.points if point.name == "host:condense@4"]
    assert len(ends) == 1
    assert operations.aliases["C.0"] < operations.aliases["C.1"]


@pytest.mark.parametrize("name", ["finish_and_condense", "plan_on_side_stream", "graph_align"])
def test_every_useful_hold_is_realised(name: str) -> None:
    checker = Checker(load(SCENARIOS / f"{name}.toml"))
    holds = useful_holds(list_operations(checker.subject, None))
    assert len(holds) > 10
    for hold in holds:
        (outcome,) = checker.execute(schedule=parse_schedule([hold])).trace.holds
        assert outcome.realised, hold


def test_with_a_fault_a_conflict_is_turned_first(checker: Checker) -> None:
    fault = find_fault(FAULT)
    found = described(checker, fault)
    assert found.fault == FAULT
    first = parse_schedule(found.holds[:1])
    assert checker.run(schedule=first, fault=fault).findings
    assert {edge.name for edge in found.edges} >= {"valid-count-landed", "input-prep-guard"}


REASONS = {
    "d2h:accepted_countz@3 until host:condense@4": "no operation 'd2h:accepted_countz'.*near it: ",
    "d2h:valid_count@99 until host:condense@4": "d2h:valid_count runs in steps 0-8, not",
    "output/d2h:valid_count@3 until forced": "runs on counts, not on output",
    "output/d2h:*@99 until forced": "runs in steps 0-8, not as output/d2h:",
    "d2h:valid_count@Z.1 until forced": "no request 'Z' is ever scheduled; near it: A",
    "d2h:valid_count@A.100 until forced": "A is scheduled in 4 steps: A.0 to A.3, not A.100",
    "d2h:valid_count@3 until host:condence@4": "'host:condence'; near it: host:condense",
    "d2h:valid_count@3 until host:condense@99": "host:condense is a point in steps 0-8",
    "d2h:valid_count@3 until host:condense@Z.0": "no request 'Z'",
    "d2h:valid_count@3 until host:schedule@2": "the point had passed: host:schedule@2 comes before",
    "d2h:valid_count@A.3 until host:schedule@A.2": "passed: host:schedule@2 comes before d2h:.*@3",
    "d2h:valid_count@3 until host:process@9": "needed before .*waits for edge valid-count-landed",
    "d2h:valid_count@3[9:] until forced": "row 9 is out of range: .* from row 1 to 2",
    "d2h:valid_count@3[0:] until forced": "row 0 is out of range",
    "kernel:embed@3[2:] until forced": "no rows that could land apart",
    "kernel:embed@3 until kernel:layer.0@3": "cannot be complete while kernel:embed@3 is not",
}


@pytest.mark.parametrize("hold", REASONS, ids=str)
def test_a_hold_says_what_is_wrong_with_it(hold: str, checker: Checker) -> None:
    result = checker.run(schedule=parse_schedule([hold]))
    assert not result.holds[0].realised
    (reason,) = with_reasons(checker, result, None).unmet
    assert reason.startswith("hold '")
    assert re.search(REASONS[hold], reason), reason


def test_a_realised_hold_needs_no_reason(checker: Checker) -> None:
    result = checker.run(schedule=parse_schedule(["d2h:valid_count@3 until host:schedule@4"]))
    assert result.holds[0].realised
    assert with_reasons(checker, result, None) is result


def test_a_late_operation_has_an_edge(operations: Operations) -> None:
    (entry,) = (one for one in operations.entries if one.name == "d2h:valid_count@3")
    assert (entry.lane, entry.rows, entry.edge) == ("counts", 3, "valid-count-landed")
    (hold,) = parse_schedule(["d2h:valid_count@3 until forced"]).holds
    assert "nothing had to wait" in why_unrealised(hold, operations)


def test_numbers_in_few_words() -> None:
    assert in_ranges([3, 1, 2, 7, 2]) == "1-3, 7"
    assert in_ranges([]) == ""


def test_ranges_are_of_numbers_in_their_order_however_they_come() -> None:
    assert in_ranges([8, 1, 9, 33, 8]) == "1, 8-9, 33"


def test_an_alias_is_of_the_step_in_which_its_request_was_planned(operations: Operations) -> None:
    """A comes first, in the first step, and runs in each step until it ends."""
    steps = [step for alias, step in operations.aliases.items() if alias.startswith("A.")]
    assert steps == list(range(len(steps)))
