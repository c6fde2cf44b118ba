"""The comparison of search that learns: its figures on made-up hunts, and a small one for real."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
from typer.testing import CliRunner

from racegate.cli.app import app
from racegate.faults.mutations import Mutation, MutationOperator
from racegate.history.exit_code import ExitCode
from racegate.measure.evaluation.learning import job
from racegate.measure.evaluation.learning.figures import compared, rows_of, slowest
from racegate.measure.evaluation.learning.hunt import Hunter
from racegate.measure.evaluation.learning.results import Approach, Hunt
from racegate.measure.evaluation.learning.sequences import sequence_of
from racegate.measure.evaluation.learning.targets import HuntTarget, TargetKind
from racegate.measure.evaluation.source.results import Edit, SourceMutant, SourceOperator
from racegate.measure.evaluation.source.sources import ROOT

SCENARIOS = 300
NAMES = tuple(f"target {number}" for number in range(6))


def hunts_of(approach: Approach, rate: float, seeds: int) -> list[Hunt]:
    """Made up: each scenario notices each target at this rate."""
    random = Random(f"{approach} {rate}")
    found = []
    for seed in range(seeds):
        for name in NAMES:
            hits = (i for i in range(SCENARIOS) if random.random() < rate)
            first = next(hits, None)
            found.append(
                Hunt(approach=approach, seed=seed, target=name, scenarios=SCENARIOS, first=first)
            )
    return found


def test_twice_the_rate_is_half_the_schedules_also_where_budgets_end() -> None:
    hunts = hunts_of(Approach.UNIFORM, 1 / 300, 200) + hunts_of(Approach.LEARNED, 2 / 300, 200)
    row = compared(hunts, Approach.LEARNED, NAMES)
    assert row is not None
    assert row.sooner.low < 2 < row.sooner.high
    assert row.sooner.high - row.sooner.low < 0.6
    assert row.more.value == pytest.approx(row.found - row.uniform)
    assert row.more.low > 0


def test_equal_arms_are_equal_and_hunts_that_no_other_arm_has_do_not_count() -> None:
    hunts = hunts_of(Approach.UNIFORM, 0.01, 8)
    same = [
        Hunt(
            approach=Approach.EVEN,
            seed=one.seed,
            target=one.target,
            scenarios=one.scenarios,
            first=one.first,
        )
        for one in hunts
        if one.seed < 6
    ]
    row = compared(hunts + same, Approach.EVEN, NAMES)
    assert row is not None
    assert (row.seeds, row.sooner.value, row.sooner.low, row.sooner.high) == (6, 1.0, 1.0, 1.0)
    assert row.more.value == 0
    assert compared(hunts, Approach.EVEN, NAMES) is None


def test_what_neither_noticed_says_nothing_and_what_one_did_counts_half() -> None:
    hunts = [
        Hunt(approach=approach, seed=0, target=name, scenarios=100, first=first)
        for approach, name, first in (
            (Approach.UNIFORM, "a", None),
            (Approach.LEARNED, "a", 49),
            (Approach.UNIFORM, "b", None),
            (Approach.LEARNED, "b", None),
        )
    ]
    row = compared(hunts, Approach.LEARNED, ["a", "b"])
    assert row is not None
    assert row.targets == 1
    assert row.sooner.value == pytest.approx((1 / 50) / (0.5 / 100))
    assert [one.schedules for one in rows_of(hunts, ["a", "b"])] == [
        {"uniform": None, "learned": 50.0},
        {"uniform": None, "learned": None},
    ]


def test_the_slowest_are_a_tenth_of_what_was_noticed() -> None:
    hunts = [
        Hunt(
            approach=Approach.UNIFORM,
            seed=0,
            target=f"t{n:02}",
            scenarios=50,
            first=n if n < 30 else None,
        )
        for n in range(40)
    ]
    slow, unnoticed = slowest(hunts)
    assert slow == ["t29", "t28", "t27"]
    assert unnoticed == [f"t{n}" for n in range(30, 40)]


def a_source_mutant() -> HuntTarget:
    """An engine that never plans a second step."""
    file = "harness/racegate/engine/engine.py"
    content = (ROOT / file).read_bytes()
    before, after = b"self.scheduler.plan(step)", "self.scheduler.plan(0)"
    start = content.index(before)
    line = content.count(b"\n", 0, start) + 1
    edit = Edit(
        operator=SourceOperator.ARGUMENTS,
        scope="AsyncEngine.step",
        lines=(line, line),
        start=start,
        end=start + len(before),
        text=after,
    )
    mutant = SourceMutant(file=file, edit=edit, before=before.decode(), after=after)
    return HuntTarget(name=mutant.name, kind=TargetKind.SOURCE, mutant=mutant)


TARGETS = (
    HuntTarget(name="correction-partial-fields", kind=TargetKind.FAULT),
    HuntTarget(
        name="dropped",
        kind=TargetKind.EDGE,
        mutation=Mutation(edge="output-landed", operator=MutationOperator.DROP),
    ),
)


def test_a_small_comparison_goes_on_and_comes_to_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "CHOOSING", 1)
    monkeypatch.setattr(job, "CHOOSING_SCENARIOS", 1)
    monkeypatch.setattr(job, "all_targets", lambda: list(TARGETS))
    words = ["--approach", "learned", "--seeds", "1", "--scenarios", "1"]
    words += ["--keep", str(tmp_path / "hunts.jsonl")]

    def run(*more: str, code: ExitCode = ExitCode.CLEAN) -> str:
        said = CliRunner().invoke(app, ["campaign", "compare", *words, *more])
        assert said.exit_code == code, said.output
        return said.stdout

    assert "not complete" in run("--seconds", "0", code=ExitCode.INCONCLUSIVE)
    whole = json.loads(run("--json", "-"))
    assert {hunt["approach"] for hunt in whole["hunts"]} == {"uniform", "learned"}
    assert len(whole["slow"]) + len(whole["unnoticed"]) <= len(TARGETS)
    monkeypatch.setattr(job, "pool_of", None)  # everything is known
    assert json.loads(run("--json", "-"))["hunts"] == whole["hunts"]
    page = tmp_path / "learn.md"
    assert "2 faults and mutants" in run("--markdown", str(page))
    assert page.read_text().startswith("# Search that learns\n\n2 seeded faults")


def test_a_target_is_noticed_by_the_first_scenario_that_shows_it() -> None:
    edge, source = TARGETS[1], a_source_mutant()
    sequence = sequence_of(Approach.UNIFORM, 3, 2, (edge, source))
    hunter = Hunter(sequence)
    assert [hunter.first(edge), hunter.first(source)] == [0, 0]
    assert sequence.concerned[source.name] == (0, 1)
    assert sequence.reached[-1] > 500
