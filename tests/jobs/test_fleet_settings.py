"""A fleet gives every target the same scenarios, and the settings of racegate's own engine only to
those that are told them: a release has settings of its own.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from racegate.check.selfcheck import SelfCheck
from racegate.history.finding import Verdict
from racegate.jobs.fleet import worker as fleet_worker
from racegate.jobs.fleet.shown import FleetAnswers, Shown
from racegate.jobs.fleet.targets import AdapterTarget, SglangTarget, Target, VllmTarget
from racegate.jobs.fleet.worker import BatchReport, FleetSpec, FleetWorker, ScenarioBatch
from racegate.jobs.generated import drawn
from racegate.scenario.files import load, load_for
from racegate.scenario.spec import OwnScenario, Scenario, happening, settings_of

SEED, INDEX = 3, 0
SCRIPT = drawn(SEED, INDEX)
VLLM = VllmTarget(name="v", vllm="0.24.0")
SGLANG = SglangTarget(name="s", sglang="0.5.13")
ADAPTER = AdapterTarget(name="a", adapter=("python", "runner.py"), folder=".")


class Read:
    """In the place of a target's gate: what the target would read, and a verdict on each."""

    def __init__(self) -> None:
        self.scripts: list[OwnScenario | Scenario] = []

    def __call__(self, target: Target, *, folder: Path, timeout_s: float) -> FleetAnswers:
        paths = sorted(folder.glob("*.toml"))
        is_release = not isinstance(target, AdapterTarget)
        self.scripts += [load_for("a release", p) if is_release else load(p) for p in paths]
        shown = Shown(verdict=Verdict.DIVERGENT, signature="a/x", schedules=1, delivered=1)
        return FleetAnswers(shown={path.stem: shown for path in paths}, why="")


def nothing_missing(target: Target) -> str:
    return ""


def judged(target: Target, monkeypatch: pytest.MonkeyPatch) -> tuple[Read, BatchReport]:
    read = Read()
    monkeypatch.setattr(fleet_worker, "judge_by_gate", read)
    spec = FleetSpec(seed=SEED, targets=(target,), draw=drawn, missing=nothing_missing, timeout_s=0)
    answer = FleetWorker(spec, gpu=None).work(ScenarioBatch(target=target.name, indices=(INDEX,)))
    assert isinstance(answer, BatchReport) and answer.selfcheck == SelfCheck()
    return read, answer


def test_the_scenario_has_settings_to_lose() -> None:
    assert settings_of(SCRIPT)


@pytest.mark.parametrize("target", [VLLM, SGLANG], ids=lambda target: target.name)
def test_a_release_is_told_what_happens(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    read, answer = judged(target, monkeypatch)
    assert read.scripts == [happening(SCRIPT)]
    found = answer.reports[INDEX].found
    assert found is not None and settings_of(found.witness.scenario) == ()


def test_a_runner_behind_an_adapter_is_told_the_settings_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read, answer = judged(ADAPTER, monkeypatch)
    assert read.scripts == [SCRIPT]
    found = answer.reports[INDEX].found
    assert found is not None and found.witness.scenario == SCRIPT
