"""The comparison of search that learns: its figures on made-up hunts, and a small one for real."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from racegate.evaluation.learning import job
from racegate.evaluation.learning.figures import Hunt, compared, rows_of, slowest
from racegate.evaluation.learning.hunt import Hunter
from racegate.evaluation.learning.job import LearnSpec, compare
from racegate.evaluation.learning.sequences import Arm, sequence_of
from racegate.evaluation.learning.targets import ENGINE, Target, TargetKind
from racegate.evaluation.source.sources import ROOT, files_of, find_source, mutants_of
from racegate.faults.mutations import Mutation, Operator

SCENARIOS = 300
NAMES = tuple(f"target {number}" for number in range(6))


def hunts_of(arm: Arm, rate: float, seeds: int) -> list[Hunt]:
    """Made up: each scenario notices each target at this rate."""
    random = Random(f"{arm} {rate}")
    found = []
    for seed in range(seeds):
        for name in NAMES:
            hits = (i for i in range(SCENARIOS) if random.random() < rate)
            first = next(hits, None)
            found.append(Hunt(arm=arm, seed=seed, target=name, scenarios=SCENARIOS, first=first))
    return found


def test_twice_the_rate_is_half_the_schedules_also_where_budgets_end() -> None:
    hunts = hunts_of(Arm.UNIFORM, 1 / 300, 200) + hunts_of(Arm.LEARNED, 2 / 300, 200)
    row = compared(hunts, Arm.LEARNED, NAMES)
    assert row is not None
    assert row.sooner.low < 2 < row.sooner.high
    assert row.sooner.high - row.sooner.low < 0.6
    assert row.more.value == pytest.approx(row.found - row.uniform)
    assert row.more.low > 0


def test_equal_arms_are_equal_and_hunts_that_no_other_arm_has_do_not_count() -> None:
    hunts = hunts_of(Arm.UNIFORM, 0.01, 8)
    same = [
        Hunt(
            arm=Arm.EVEN, seed=one.seed, target=one.target, scenarios=one.scenarios, first=one.first
        )
        for one in hunts
        if one.seed < 6
    ]
    row = compared(hunts + same, Arm.EVEN, NAMES)
    assert row is not None
    assert (row.seeds, row.sooner.value, row.sooner.low, row.sooner.high) == (6, 1.0, 1.0, 1.0)
    assert row.more.value == 0
    assert compared(hunts, Arm.EVEN, NAMES) is None


def test_what_neither_noticed_says_nothing_and_what_one_did_counts_half() -> None:
    hunts = [
        Hunt(arm=arm, seed=0, target=name, scenarios=100, first=first)
        for arm, name, first in (
            (Arm.UNIFORM, "a", None),
            (Arm.LEARNED, "a", 49),
            (Arm.UNIFORM, "b", None),
            (Arm.LEARNED, "b", None),
        )
    ]
    row = compared(hunts, Arm.LEARNED, ["a", "b"])
    assert row is not None
    assert row.targets == 1
    assert row.sooner.value == pytest.approx((1 / 50) / (0.5 / 100))
    assert [one.schedules for one in rows_of(hunts, ["a", "b"])] == [
        {"uniform": None, "learned": 50.0},
        {"uniform": None, "learned": None},
    ]


def test_the_slowest_are_a_tenth_of_what_was_noticed() -> None:
    hunts = [
        Hunt(arm=Arm.UNIFORM, seed=0, target=f"t{n:02}", scenarios=50, first=n if n < 30 else None)
        for n in range(40)
    ]
    slow, unnoticed = slowest(hunts)
    assert slow == ["t29", "t28", "t27"]
    assert unnoticed == [f"t{n}" for n in range(30, 40)]


def a_source_mutant() -> Target:
    """One that the first scenarios notice."""
    path = next(one for one in files_of(find_source(ENGINE)) if one.name == "accepted_counts.py")
    assert path.is_relative_to(ROOT)
    mutant = next(one for one in mutants_of(path) if "." in one.edit.scope)
    return Target(name=mutant.name, kind=TargetKind.SOURCE, mutant=mutant)


TARGETS = (
    Target(name="correction-partial-fields", kind=TargetKind.FAULT),
    Target(
        name="dropped",
        kind=TargetKind.EDGE,
        mutation=Mutation(edge="input-prep-guard", operator=Operator.DROP),
    ),
)


def test_a_small_comparison_goes_on_and_comes_to_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "CHOOSING", 1)
    monkeypatch.setattr(job, "CHOOSING_SCENARIOS", 3)
    monkeypatch.setattr(job, "all_targets", lambda: list(TARGETS))
    asked = LearnSpec(arms=(Arm.LEARNED,), seeds=1, scenarios=3)
    keep = tmp_path / "hunts.jsonl"
    stopped = compare(asked, workers=1, seconds=0.0, keep=keep)
    assert not stopped.is_complete
    whole = compare(asked, workers=1, keep=keep)
    assert whole.is_complete
    assert {hunt.target for hunt in whole.hunts} <= {one.name for one in TARGETS}
    drawing: list[str] = []
    again = compare(asked, workers=1, keep=keep, on_done=drawing.append)
    assert (again.hunts, drawing) == (whole.hunts, [])


def test_a_target_is_noticed_by_the_first_scenario_that_shows_it() -> None:
    targets = (*TARGETS, a_source_mutant())
    sequence = sequence_of(Arm.PLAIN, 3, 3, targets)
    hunter = Hunter(sequence)
    assert [hunter.first(target) for target in targets] == [0, 0, 0]
    assert sequence.concerned[targets[0].name] == (0, 1, 2)
    assert sequence.reached[-1] > 500
