"""The law of counts: silent on right runs, and every counter that is wrong by one is seen."""

from __future__ import annotations

from functools import cache

import msgspec
import pytest

from racegate.history.run import EngineResult, Run
from racegate.oracles.counts import EXACT, INVARIANT, LEAST, find_miscounts
from support import checker

# Between them every count is more than zero, and no two runs have the same.
SCENARIOS = (
    "align-evicted-prefix",
    "cascade-prefix-hits",
    "constrained-rows",
    "depth-three",
    "idle-rank-dummy-steps",
    "offload-preempted-save",
    "offload-save-and-load",
    "slots-steady",
    "three-row-cycle",
)


@cache
def run_of(name: str) -> Run:
    return checker(name).execute()


def result_of(name: str) -> EngineResult:
    result = run_of(name).result
    assert result is not None
    return result


def messages(name: str, **counters: int) -> list[str]:
    """What is said of a run that counted otherwise."""
    run, result = run_of(name), result_of(name)
    other = msgspec.structs.replace(result, counters=result.counters | counters)
    found = find_miscounts(run.observations, other, checker(name).scenario)
    assert {violation.invariant for violation in found} <= {INVARIANT}
    assert {violation.step for violation in found} <= {result.steps - 1}
    return [violation.message for violation in found]


@pytest.mark.parametrize("name", SCENARIOS)
def test_right_runs_counted_what_they_show(name: str) -> None:
    assert messages(name) == []


def test_every_count_is_exercised() -> None:
    for count in (*EXACT, *LEAST):
        assert any(result_of(name).counters[count] > 0 for name in SCENARIOS), count


@pytest.mark.parametrize("count", EXACT)
@pytest.mark.parametrize("off", [-1, 1])
def test_a_count_that_is_off_by_one_is_seen(count: str, off: int) -> None:
    for name in SCENARIOS:
        right = result_of(name).counters[count]
        wrong = right + off
        expected = f"{count} is {wrong}, the observations show {right}"
        assert messages(name, **{count: wrong}) == [expected], name


@pytest.mark.parametrize("count", LEAST)
def test_a_count_of_which_the_least_is_known_may_not_fall(count: str) -> None:
    script_of = {"row_moves": "three-row-cycle", "cascade_steps": "cascade-prefix-hits"}
    name = script_of.get(count, "align-evicted-prefix")
    counters = result_of(name).counters
    said = messages(name, **{count: 1})
    assert f"{count} is 1, the observations show at least" in said[0]
    assert counters[count] > 1


def test_row_moves_are_condense_and_reorder_moves() -> None:
    more = result_of("three-row-cycle").counters["row_moves"] + 1
    assert messages("three-row-cycle", row_moves=more) == [
        "row_moves is not the sum of condense_moves and reorder_moves"
    ]
