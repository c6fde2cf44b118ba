"""A worker of a fleet: says which targets it can run, and has them judge scenarios."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from racegate.check.selfcheck import SelfCheck, together
from racegate.interpose.build import find_toolkit
from racegate.interpose.errors import BadInput
from racegate.jobs.fleet.own import FleetAnswers, judge_by_runs
from racegate.jobs.fleet.sources import sources_of
from racegate.jobs.fleet.targets import (
    AdapterTarget,
    DeviceTarget,
    ForeignTarget,
    OwnTarget,
    PythonTarget,
    RevisionTarget,
    SglangTarget,
    Target,
    TargetDevice,
    VllmTarget,
)
from racegate.jobs.foreign.opened import OpenTarget, TargetOptions, TargetResult, open_target
from racegate.jobs.foreign.releases import kind_of
from racegate.jobs.foreign.requests import drawn_number
from racegate.jobs.foreign.worker import DrawScenario, report_of
from racegate.jobs.generated import Report
from racegate.scenario.errors import BadInputError, BrokenHarnessError
from racegate.scenario.spec import OwnScenario
from racegate.targets.program.launch import checked_program


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


class FleetSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What workers have to know. draw: names the scenario with its index; timeout_s: for each
    process of our own engine, or each run of another one, 0 is no limit
    """

    seed: int
    targets: tuple[Target, ...]
    draw: DrawScenario
    timeout_s: float


class FleetWorker:
    """See pool.Worker. gpu: the one that is its own, as CUDA_VISIBLE_DEVICES has it, if any is"""

    def __init__(self, spec: FleetSpec, *, gpu: str | None) -> None:
        self._spec = spec
        self._gpu = gpu
        self._targets = {target.name: target for target in spec.targets}
        self._opened: dict[str, tuple[ExitStack, OpenTarget]] = {}

    def work(self, task: FleetTask) -> FleetAnswer:
        """What it can run, or a batch."""
        if isinstance(task, SurveyTask):
            why = {name: self._why_not(target) for name, target in self._targets.items()}
            return Offers(lacking={name: text for name, text in why.items() if text})
        return self._judged(self._targets[task.target], task.indices)

    def end(self) -> None:
        """Nothing is left to say."""
        for name in list(self._opened):
            self._close(name)

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
            case PythonTarget():
                try:
                    checked_program(target.program)
                    find_toolkit()
                except BadInput as error:
                    return str(error)
            case VllmTarget() | SglangTarget():
                try:
                    kind_of(target.subject).packaging.environment_of(target.subject.release)
                except BadInput as error:
                    return str(error)
        return ""

    def _judged(self, target: Target, indices: Sequence[int]) -> BatchReport:
        """All of them; what that leaves without an answer once more, each alone."""
        draw = drawn_number if isinstance(target, PythonTarget) else self._spec.draw
        drawn = {index: draw(self._spec.seed, index) for index in indices}
        judged = self._asked(target, list(drawn.values()))
        shown, checks, aside = dict(judged.shown), [judged.selfcheck], {}
        for index, scenario in drawn.items():
            if scenario.name not in shown and len(drawn) > 1:
                judged = self._asked(target, [scenario])
                shown.update(judged.shown)
                checks.append(judged.selfcheck)
            if scenario.name not in shown:
                aside[index] = judged.why
        return BatchReport(
            target=target.name,
            reports={
                index: report_of(self._spec.seed, index, shown[scenario.name])
                for index, scenario in drawn.items()
                if scenario.name in shown
            },
            aside=aside,
            selfcheck=together(checks),
        )

    def _asked(self, target: Target, scenarios: Sequence[OwnScenario]) -> FleetAnswers:
        if isinstance(target, RevisionTarget | DeviceTarget):
            return self._asked_apart(target, scenarios)
        shown: dict[str, TargetResult] = {}
        selfcheck = SelfCheck()
        try:
            for scenario in scenarios:
                opened, planted = self._open(target)
                selfcheck = together((selfcheck, planted))
                answer = opened.judge(scenario)
                if answer.result.is_lost:
                    return FleetAnswers(shown=shown, why=answer.result.message, selfcheck=selfcheck)
                shown[scenario.name] = answer
        except (BadInput, BadInputError, BrokenHarnessError) as error:
            self._close(target.name)
            return FleetAnswers(shown=shown, why=str(error), selfcheck=selfcheck)
        return FleetAnswers(shown=shown, selfcheck=selfcheck)

    def _open(self, target: ForeignTarget) -> tuple[OpenTarget, SelfCheck]:
        """A target that stays open until this worker ends, and what its start has shown."""
        if target.name in self._opened:
            return self._opened[target.name][1], SelfCheck()
        stack = ExitStack()
        options = TargetOptions(run_s=self._spec.timeout_s or None)
        opened = stack.enter_context(open_target(target.subject, options))
        self._opened[target.name] = stack, opened
        return opened, opened.selfcheck

    def _close(self, name: str) -> None:
        if name in self._opened:
            stack, _ = self._opened.pop(name)
            stack.close()

    def _asked_apart(self, target: OwnTarget, scenarios: Sequence[OwnScenario]) -> FleetAnswers:
        """Our own engine in one process, whose files are gone behind it."""
        with tempfile.TemporaryDirectory(prefix="racegate-fleet-") as made:
            return judge_by_runs(
                target,
                scenarios,
                seed=self._spec.seed,
                variables=self._variables(target),
                folder=Path(made),
                timeout_s=self._spec.timeout_s,
            )

    def _variables(self, target: OwnTarget) -> dict[str, str]:
        """Of the process that runs it."""
        if isinstance(target, RevisionTarget):
            return {"PYTHONPATH": sources_of(Path(target.checkout), target.revision)}
        return {"CUDA_VISIBLE_DEVICES": self._gpu or ""}
