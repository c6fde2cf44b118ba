"""The gate's scripts: fault-free they are proved, equal the reference under any timing, and
exercise what they say.
"""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from racegate.history.finding import Verdict
from racegate.history.schedule import LATE, Schedule, lane_late
from racegate.oracles.stepwise import FLOAT_TOLERANCE
from racegate.scenario.expect import Expect
from racegate.scenario.settings import Numerics
from support import NAMES, SCENARIOS, checker, scenario

SCHEDULES = {
    "eager": Schedule(),
    "late": LATE,
    "compute late": lane_late("compute"),
    "counts late": lane_late("counts"),
    "output late": lane_late("output"),
}


def test_there_are_enough_scripts_and_file_names_match() -> None:
    assert len(NAMES) >= 14
    for name in NAMES:
        assert scenario(name).name == name


@pytest.mark.parametrize("name", NAMES)
def test_every_script_says_what_it_exercises_and_where_it_comes_from(name: str) -> None:
    text = (SCENARIOS / f"{name.replace('-', '_')}.toml").read_text()
    assert "# Exercises: " in text
    assert "# From: " in text
    assert scenario(name).origin
    assert scenario(name).expect != Expect()
    assert scenario(name).expect.overlapped_ops > 0


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("timing", SCHEDULES)
def test_fault_free_scripts_are_proved_under_any_timing(name: str, timing: str) -> None:
    schedule = SCHEDULES[timing]
    result = checker(name).run(schedule=schedule, is_audited=timing == "eager")
    assert result.findings == ()
    assert result.stats.conflicts == 0
    if timing == "eager":
        assert result.unmet == ()
        assert result.verdict is Verdict.PROVED


@pytest.mark.parametrize("name", NAMES)
def test_the_trace_and_the_values_do_not_depend_on_the_timing(name: str) -> None:
    eager, late = checker(name).execute(), checker(name).execute(schedule=LATE)
    assert eager.trace.events == late.trace.events
    assert len(eager.observations) == len(late.observations)
    for one, other in zip(eager.observations, late.observations, strict=True):
        for field, value in one.values.items():
            np.testing.assert_array_equal(value, other.values[field])


@pytest.mark.parametrize("name", NAMES)
def test_exact_scripts_equal_the_reference_bit_for_bit(name: str) -> None:
    # Said once more without the oracle, which these tests must not take on trust.
    run = checker(name).execute()
    reference = checker(name).reference.observations
    assert len(run.observations) == len(reference)
    is_exact = scenario(name).model.numerics is Numerics.EXACT
    for mine, right in zip(run.observations, reference, strict=True):
        assert (mine.step, mine.boundary) == (right.step, right.boundary)
        assert set(right.values) <= set(mine.values)
        for field, value in right.values.items():
            if is_exact or not isinstance(value, np.ndarray) or value.dtype.kind != "f":
                np.testing.assert_array_equal(mine.values[field], value)
            else:
                difference = np.abs(mine.values[field] - value)
                assert (difference <= FLOAT_TOLERANCE * (1 + np.abs(value))).all()


@pytest.mark.parametrize("name", NAMES)
def test_a_script_that_exercises_less_than_it_says_is_no_pass(name: str) -> None:
    from racegate.check.checker import Checker

    more = msgspec.structs.replace(scenario(name).expect, row_moves=10_000)
    result = Checker(msgspec.structs.replace(scenario(name), expect=more)).run()
    assert result.verdict is Verdict.INCONCLUSIVE
    assert any(reason.startswith("row_moves") for reason in result.unmet)
