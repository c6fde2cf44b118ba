"""A fleet gives every target the same scenarios, and the settings of racegate's own engine only to
those that are told them: a release has settings of its own. What it finds is a release's witness.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fleets import toys
from racegate.history.replayed import ReplayOutcome
from racegate.history.witness import DrawnIndex, save
from racegate.jobs.fleet.targets import AdapterTarget, SglangTarget, VllmTarget
from racegate.jobs.fleet.worker import BatchReport, FleetSpec, FleetWorker, ScenarioBatch
from racegate.jobs.foreign import opened
from racegate.jobs.foreign.requests import drawn_requests
from racegate.jobs.generated import GeneratedFinding, drawn
from racegate.jobs.triage import replays
from racegate.jobs.triage.replays import ReplaySettings, replay_files
from racegate.scenario.spec import OwnScenario, configured, happening, settings_of
from racegate.targets.adapters.witness import AdapterWitness
from racegate.targets.common.witnesses.witness import ReleaseWitness
from small_engine import Wait
from small_release import SmallReleases

SEED, INDEX = 8, 0
VLLM = VllmTarget(name="v", vllm="0.24.0")
SGLANG = SglangTarget(name="s", sglang="0.5.13")


def scripted(seed: int, index: int) -> OwnScenario:
    """Requests that everybody can run, with settings of our own engine."""
    requests = drawn_requests(seed, index)
    return configured(happening(requests), engine=drawn(3, 0).engine)


def found_by(target: VllmTarget | SglangTarget | AdapterTarget) -> GeneratedFinding:
    """What a fleet's worker finds in the first scenario."""
    spec = FleetSpec(seed=SEED, targets=(target,), draw=scripted, timeout_s=0)
    worker = FleetWorker(spec, gpu=None)
    answer = worker.work(ScenarioBatch(target=target.name, indices=(INDEX,)))
    worker.end()
    assert isinstance(answer, BatchReport) and answer.aside == {}
    found = answer.reports[INDEX].found
    assert found is not None and found.witness.drawn == DrawnIndex(seed=SEED, index=INDEX)
    return found


def test_the_scenario_has_settings_to_lose() -> None:
    assert settings_of(scripted(SEED, INDEX))


@pytest.mark.parametrize("target", [VLLM, SGLANG], ids=lambda target: target.name)
def test_a_release_is_told_what_happens_and_its_finding_is_its_own_witness(
    target: VllmTarget | SglangTarget, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    small = SmallReleases(Wait.BEHIND)
    monkeypatch.setattr(opened, "open_release", small)
    monkeypatch.setattr(replays, "open_release", small)
    found = found_by(target)
    assert set(small.scenarios) == {happening(scripted(SEED, INDEX)).name}
    witness = found.witness
    assert isinstance(witness, ReleaseWitness)
    assert (witness.subject, witness.scenario) == (
        target.subject,
        happening(scripted(SEED, INDEX)),
    )
    assert found.signature == witness.known_as
    file = tmp_path / "found.raw.witness.json"
    save(witness, file)
    (again,) = replay_files([file], ReplaySettings())
    assert again.outcome is ReplayOutcome.REPRODUCED


def test_a_runner_behind_an_adapter_is_told_the_settings_too(tmp_path: Path) -> None:
    _, wrong = toys(tmp_path)
    command = (sys.executable, "toy_adapter.py", "plain", "holds")
    target = AdapterTarget(name="a", adapter=command, folder=str(wrong))
    spec = FleetSpec(seed=SEED, targets=(target,), draw=scripted, timeout_s=0)
    answer = FleetWorker(spec, gpu=None).work(ScenarioBatch(target="a", indices=(INDEX,)))
    assert isinstance(answer, BatchReport)
    found = answer.reports[INDEX].found
    assert found is not None and isinstance(found.witness, AdapterWitness)
    assert found.witness.scenario == scripted(SEED, INDEX)
    assert found.witness.subject.folder == str(wrong)
