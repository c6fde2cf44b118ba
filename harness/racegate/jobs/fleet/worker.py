"""A worker of a fleet: says which targets it can run, and has them judge scenarios."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from racegate.check.selfcheck import SelfCheck, together
from racegate.history.witness import EngineSubject, Witness, versions
from racegate.jobs.fleet.gates import judge_by_gate
from racegate.jobs.fleet.own import judge_by_runs
from racegate.jobs.fleet.replaying import replay_of
from racegate.jobs.fleet.shown import FleetAnswers, Shown
from racegate.jobs.fleet.sources import sources_of
from racegate.jobs.fleet.targets import (
    AdapterTarget,
    DeviceTarget,
    RevisionTarget,
    Target,
    TargetDevice,
)
from racegate.jobs.generated import NOTHING_HAPPENED, GeneratedFinding, Report
from racegate.scenario.errors import BadInputError
from racegate.scenario.spec import OwnScenario, configured, happening
from racegate.scenario.writing import toml_of

NOT_RUN = "not run"


class SurveyTask(msgspec.Struct, frozen=True):
    """A worker's first task: which targets can it run?"""


class Offers(msgspec.Struct, frozen=True, kw_only=True):
    """Of one worker. lacking: why it cannot run a target, by name; the others it can"""

    lacking: dict[str, str]


class ScenarioBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Scenarios of one target. indices: one after the other"""

    target: str
    indices: tuple[int, ...]


class BatchReport(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a batch. reports: of the scenarios that were answered, by index; aside: why
    others were not
    """

    target: str
    reports: dict[int, Report]
    aside: dict[int, str]
    selfcheck: SelfCheck


FleetTask = SurveyTask | ScenarioBatch
FleetAnswer = Offers | BatchReport
# Draws a scenario from the seed and its index.
DrawScenario = Callable[[int, int], OwnScenario]


class FleetSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What workers have to know. draw: names the scenario with its index; missing: what a target
    needs and this machine has not, empty if nothing
    timeout_s: for each process, 0 is no limit
    """

    seed: int
    targets: tuple[Target, ...]
    draw: DrawScenario
    missing: Callable[[Target], str]
    timeout_s: float


class FleetWorker:
    """See pool.Worker. gpu: the one that is its own, as CUDA_VISIBLE_DEVICES has it, if any is"""

    def __init__(self, spec: FleetSpec, *, gpu: str | None) -> None:
        self._spec = spec
        self._gpu = gpu
        self._targets = {target.name: target for target in spec.targets}

    def work(self, task: FleetTask) -> FleetAnswer:
        """What it can run, or a batch."""
        if isinstance(task, SurveyTask):
            why = {name: self._why_not(target) for name, target in self._targets.items()}
            return Offers(lacking={name: text for name, text in why.items() if text})
        return self._judged(self._targets[task.target], task.indices)

    def end(self) -> None:
        """Nothing is left to say."""

    def _why_not(self, target: Target) -> str:
        """Why this worker cannot run a target; empty if it can."""
        match target:
            case RevisionTarget():
                try:
                    sources_of(Path(target.checkout), target.revision)
                except BadInputError as error:
                    return str(error)
            case DeviceTarget(device=TargetDevice.GPU) if self._gpu is None:
                return "this worker has no GPU (--gpus N gives so many workers one)"
            case AdapterTarget(adapter=(program, *_)):
                if not Path(target.folder).is_dir():
                    return f"no folder {target.folder}"
                path = os.pathsep.join((os.environ.get("PATH", ""), target.folder))
                if shutil.which(program, path=path) is None:
                    return f"no program {program}"
        return self._spec.missing(target)

    def _judged(self, target: Target, indices: Sequence[int]) -> BatchReport:
        """All in one process; what that leaves without an answer each in one of its own."""
        drawn = {
            index: _as_run(target, self._spec.draw(self._spec.seed, index)) for index in indices
        }
        judged = self._asked(target, list(drawn.values()))
        shown, checks, aside = dict(judged.shown), [judged.selfcheck], {}
        for index, scenario in drawn.items():
            if scenario.name not in shown and len(drawn) > 1:
                judged = self._asked(target, [scenario])
                shown.update(judged.shown)
                checks.append(judged.selfcheck)
            if scenario.name not in shown:
                aside[index] = judged.why
        report = partial(_report, self._spec.seed, target)
        return BatchReport(
            target=target.name,
            reports={
                index: report(index, scenario, shown[scenario.name])
                for index, scenario in drawn.items()
                if scenario.name in shown
            },
            aside=aside,
            selfcheck=together(checks),
        )

    def _asked(self, target: Target, scenarios: Sequence[OwnScenario]) -> FleetAnswers:
        """One process, whose files are gone behind it."""
        timeout_s = self._spec.timeout_s
        with tempfile.TemporaryDirectory(prefix="racegate-fleet-") as made:
            folder = Path(made) / "scenarios"
            folder.mkdir()
            for scenario in scenarios:
                (folder / f"{scenario.name}.toml").write_text(toml_of(scenario), encoding="utf-8")
            if not isinstance(target, RevisionTarget | DeviceTarget):
                return judge_by_gate(target, folder=folder, timeout_s=timeout_s)
            names = [scenario.name for scenario in scenarios]
            variables = self._variables(target)
            return judge_by_runs(
                target, names, variables=variables, folder=folder, timeout_s=timeout_s
            )

    def _variables(self, target: RevisionTarget | DeviceTarget) -> dict[str, str]:
        """Of the process that runs it."""
        if isinstance(target, RevisionTarget):
            return {"PYTHONPATH": sources_of(Path(target.checkout), target.revision)}
        return {"CUDA_VISIBLE_DEVICES": self._gpu or ""}


def _as_run(target: Target, script: OwnScenario) -> OwnScenario:
    """The script with the settings that a target is told: a release has settings of its own."""
    if isinstance(target, RevisionTarget | DeviceTarget | AdapterTarget):
        return script
    return configured(happening(script))


def _report(seed: int, target: Target, index: int, scenario: OwnScenario, shown: Shown) -> Report:
    """As a campaign counts it."""
    settings = (NOT_RUN,) if shown.refused else ()
    if not (shown.refused or shown.delivered or shown.signature):
        settings = (NOTHING_HAPPENED,)
    found = None
    if shown.signature is not None:
        witness = Witness(
            title=replay_of(target, scenario.name, shown.holds),
            scenario=scenario,
            holds=shown.holds if isinstance(target, RevisionTarget | DeviceTarget) else (),
            subject=EngineSubject(fault=None, device=target.title, seed=seed),
            signature=shown.signature,
            verdict=shown.verdict,
            digest="",
            versions=versions(),
        )
        found = GeneratedFinding(
            signature=shown.signature, index=index, witness=witness, runs=0, is_minimal=False
        )
    return Report(
        index=index,
        schedules=shown.schedules,
        verdict=shown.verdict,
        exercised={},
        settings=settings,
        features=(),
        signature=shown.signature,
        found=found,
        selfcheck=SelfCheck(),
    )
