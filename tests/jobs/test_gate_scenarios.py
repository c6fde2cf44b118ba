"""The gate's scripts: fault-free they are proved, equal the reference under any timing, and
exercise what they say.
"""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from racegate.check.checker import Checker
from racegate.history.finding import Verdict
from racegate.history.run import Run
from racegate.history.schedule import LATE, Schedule, lane_late
from racegate.history.stats import unmet_expectations
from racegate.oracles.stepwise import FLOAT_TOLERANCE
from racegate.scenario.expect import Expect
from racegate.scenario.settings import Numerics
from racegate.scenario.spec import OwnScenario
from support import NAMES, SCENARIOS, checker, scenario
from together import failures

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


def test_every_script_says_what_it_exercises_and_where_it_comes_from() -> None:
    assert failures(_says_what_it_exercises, NAMES) == []


def _says_what_it_exercises(name: str) -> None:
    text = (SCENARIOS / f"{name.replace('-', '_')}.toml").read_text()
    assert "# Exercises: " in text
    assert "# From: " in text
    assert scenario(name).origin
    assert scenario(name).expect != Expect()
    assert scenario(name).expect.overlapped_ops > 0


@pytest.mark.parametrize("name", NAMES)
def test_a_fault_free_script_is_proved_and_equals_the_reference_under_any_timing(name: str) -> None:
    """One test for each script: what is run once is looked at in every way."""
    runs = {}
    for timing, schedule in SCHEDULES.items():
        runs[timing] = checker(name).execute(schedule=schedule, is_audited=timing == "eager")
        result = checker(name).judge(runs[timing], schedule=schedule)
        assert result.findings == (), timing
        assert result.stats.conflicts == 0, timing
        if timing == "eager":
            assert result.unmet == ()
            assert result.verdict is Verdict.PROVED
            unmet = unmet_expectations(asking_for_more(name), result.stats)
            assert [reason.partition(":")[0] for reason in unmet] == ["row_moves"]
    _are_the_same(runs["eager"], runs["late"])
    _equals_the_reference(name, runs["eager"])


def _are_the_same(eager: Run, late: Run) -> None:
    assert eager.trace.events == late.trace.events
    assert len(eager.observations) == len(late.observations)
    for one, other in zip(eager.observations, late.observations, strict=True):
        for field, value in one.values.items():
            np.testing.assert_array_equal(value, other.values[field])


def _equals_the_reference(name: str, run: Run) -> None:
    """Said once more without the oracle, which these tests must not take on trust."""
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


def asking_for_more(name: str) -> OwnScenario:
    """The script, expecting more moves of rows than there are."""
    more = msgspec.structs.replace(scenario(name).expect, row_moves=10_000)
    return msgspec.structs.replace(scenario(name), expect=more)


@pytest.mark.parametrize("name", NAMES[::25])
def test_a_script_that_exercises_less_than_it_says_is_no_pass(name: str) -> None:
    """That a count too low is noticed is said of every script above; here, what comes of it."""
    result = Checker(asking_for_more(name)).run()
    assert result.verdict is Verdict.INCONCLUSIVE
    assert any(reason.startswith("row_moves") for reason in result.unmet)
