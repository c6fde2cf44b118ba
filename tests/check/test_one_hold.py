"""One hold that somebody named and that changed nothing says nothing about the other landings."""

from __future__ import annotations

from pathlib import Path

import pytest

from racegate.check.checker import Checker
from racegate.check.sharing import SharedRuns
from racegate.faults.catalogue import find_fault
from racegate.faults.fault import Fault
from racegate.history.finding import Hazard, Verdict, exit_code
from racegate.history.outcome import RunResult
from racegate.history.schedule import parse_schedule
from racegate.history.verdict import Reach, Tried
from racegate.scenario.files import load

SCRIPT = Path(__file__).parents[2] / "scenarios" / "finish_and_condense.toml"
RACE = "accepted-copy-after-row-move"
HARMLESS = "d2h:accepted_counts@1 until host:condense@2"
NAMELESS = "d2h:nobody@1 until forced"


def held(hold: str, fault: Fault | None, *, is_shared: bool) -> RunResult:
    """The result under a hold, of a run of its own or of one that shares the eager run."""
    schedule = parse_schedule([hold])
    checker = Checker(load(SCRIPT))
    if is_shared:
        return SharedRuns(checker, fault).run(schedule)
    return checker.run(schedule=schedule, fault=fault)


@pytest.mark.parametrize("is_shared", [False, True])
def test_where_there_is_a_conflict_it_stays_a_conflict(*, is_shared: bool) -> None:
    found = held(HARMLESS, find_fault(RACE), is_shared=is_shared)
    assert [outcome.realised for outcome in found.holds] == [1]
    assert (found.verdict, exit_code([found.verdict])) == (Verdict.CONFLICT, 1)
    assert found.tried == Tried(reach=Reach.SOME, number=1)
    assert found.text == "CONFLICT; 1 schedule tried, without harm"
    assert [one.hazard for one in found.findings] == [Hazard.READ_AFTER_WRITE]


@pytest.mark.parametrize("is_shared", [False, True])
def test_where_there_is_none_it_is_what_the_run_without_it_is(*, is_shared: bool) -> None:
    found = held("d2h:sampled@2 until forced", None, is_shared=is_shared)
    assert (found.verdict, found.findings) == (Verdict.PROVED, ())


@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize("fault", [None, RACE])
def test_a_hold_that_keeps_nothing_back_tried_nothing(
    fault: str | None, *, is_shared: bool
) -> None:
    found = held(NAMELESS, None if fault is None else find_fault(fault), is_shared=is_shared)
    assert found.unmet == (f"hold '{NAMELESS}' was not realised",)
    assert found.tried.number == 0
    assert found.verdict is (Verdict.INCONCLUSIVE if fault is None else Verdict.CONFLICT)
