"""Targets that are not ours, opened once and asked for one scenario after the other."""

from __future__ import annotations

import shlex
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import msgspec

from racegate.check.selfcheck import SelfCheck
from racegate.history.outcome import RunResult
from racegate.history.witness import SealedWitness
from racegate.jobs.foreign.releases import OpenedEngine, ReleaseCell, kind_of, open_release
from racegate.scenario.spec import OwnScenario, Scenario, configured, happening
from racegate.targets.adapters.client import Adapter
from racegate.targets.adapters.conformance import demand_conformance
from racegate.targets.adapters.errors import AdapterError
from racegate.targets.adapters.judge import LANDINGS_MAX, AdapterCommand, AdapterJudge
from racegate.targets.adapters.process import Limits
from racegate.targets.adapters.witness import AdapterSubject, witness_of
from racegate.targets.common.client import RUN_S
from racegate.targets.common.judge import RUNS_MAX, judge
from racegate.targets.common.result import result_of
from racegate.targets.common.sensitivity import Pulse, Sensitivity
from racegate.targets.common.witnesses.again import shown_again
from racegate.targets.common.witnesses.witness import ReleaseWitness, every_witness_of
from racegate.targets.program.judge import judge_on
from racegate.targets.program.launch import DeviceServer, Program, open_device
from racegate.targets.program.result import result_of_program
from racegate.targets.program.workflow.witness import ProgramSubject
from racegate.targets.program.workflow.witness import witness_of as program_witness

# Of our own engine the settings too, which a release is not told.
Script: TypeAlias = Scenario | OwnScenario
# What a witness of the target has as its subject.
Subject: TypeAlias = ReleaseCell | AdapterSubject | ProgramSubject
PROGRAM_RUNS = 64
# Among the arguments of a program: where the number of the drawn scenario goes.
NUMBER = "{seed}"


class TargetResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a target showed with one scenario. witnesses: of its findings"""

    result: RunResult
    witnesses: tuple[SealedWitness, ...] = ()


class OpenTarget(ABC):
    """A target that was opened. Raises BadInput or AdapterError if it is gone."""

    @property
    def selfcheck(self) -> SelfCheck:
        """What was planted when it was opened, and seen."""
        return SelfCheck()

    @abstractmethod
    def judge(self, scenario: Script) -> TargetResult:
        """The scenario with the landings of what races in it."""

    def shows(self, witness: SealedWitness, scenario: Script) -> SealedWitness | None:
        """A witness of the same finding in another scenario; None if it does not show there."""
        shown = self.judge(scenario)
        return next((one for one in shown.witnesses if one.known_as == witness.known_as), None)


class TargetOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a target is judged. runs_max: under holds, of one scenario; None for as many as usual

    run_s: seconds that one run may take, None for as many as usual
    log: where an engine prints to, if not to a file that is gone behind it
    limits: of an adapter's engine
    """

    runs_max: int | None = None
    run_s: float | None = None
    log: str | None = None
    limits: Limits = Limits()


@contextmanager
def open_target(subject: Subject, options: TargetOptions) -> Iterator[OpenTarget]:
    """Starts a target, and sees whether what is planted in it shows. Raises BadInput, AdapterError
    or CommandError if it cannot be started, or is not to be believed.
    """
    if isinstance(subject, ProgramSubject):
        with open_device() as device:
            yield _OpenProgram(device, subject, options)
        return
    if isinstance(subject, AdapterSubject):
        limits, folder = options.limits, subject.folder
        if options.run_s is not None:
            limits = msgspec.structs.replace(limits, timeout_s=options.run_s)
        command = list(subject.command)
        with Adapter(command, limits=limits, folder=Path(folder) if folder else None) as adapter:
            demand_conformance(adapter)
            yield _OpenAdapter(adapter, subject, options)
        return
    with tempfile.TemporaryDirectory(prefix="racegate-log-") as made:
        log = Path(options.log or Path(made) / "engine.log")
        with open_release(subject, log=log, run_s=options.run_s or RUN_S) as opened:
            yield _OpenRelease(opened, opened.sensitivity(), options)


class _OpenRelease(OpenTarget):
    """pulses: of this engine, measured when it was opened"""

    def __init__(self, opened: OpenedEngine, pulses: Sensitivity, options: TargetOptions) -> None:
        self._opened = opened
        self._pulses = pulses
        self._runs_max = RUNS_MAX if options.runs_max is None else options.runs_max

    @property
    def selfcheck(self) -> SelfCheck:
        """A dead observation makes each verdict inconclusive, and says so there."""
        alive = sum(pulse is Pulse.ALIVE for pulse in self._pulses.values())
        return SelfCheck(canaries=alive, canaries_found=alive)

    def judge(self, scenario: Script) -> TargetResult:
        happens, cell = _happening(scenario), self._opened.cell
        judged = judge(
            self._opened.runs, happens, cell, sensitivity=self._pulses, runs_max=self._runs_max
        )
        return TargetResult(
            result=result_of(judged, f"{scenario.name}.toml"),
            witnesses=tuple(every_witness_of(kind_of(cell).witness, judged, happens)),
        )

    def shows(self, witness: SealedWitness, scenario: Script) -> SealedWitness | None:
        assert isinstance(witness, ReleaseWitness)
        if witness.holds:
            return shown_again(self._opened.runs, witness, _happening(scenario))
        return super().shows(witness, scenario)


class _OpenAdapter(OpenTarget):
    """Its conformance was demanded, with what is planted for it."""

    def __init__(self, adapter: Adapter, subject: AdapterSubject, options: TargetOptions) -> None:
        self._adapter = adapter
        self._subject = subject
        self._landings_max = LANDINGS_MAX if options.runs_max is None else options.runs_max

    def judge(self, scenario: Script) -> TargetResult:
        subject = self._subject
        script = configured(scenario) if isinstance(scenario, Scenario) else scenario
        judge = AdapterJudge(
            self._adapter,
            script,
            device=subject.device or None,
            landings_max=self._landings_max,
            command=AdapterCommand(scenario=f"{scenario.name}.toml", command=subject.command),
        )
        result = judge.judge()
        hello, folder = self._adapter.hello, subject.folder
        found = witness_of(result, script, hello, subject.command, folder=folder)
        return TargetResult(result=result, witnesses=() if found is None else (found,))

    def shows(self, witness: SealedWitness, scenario: Script) -> SealedWitness | None:
        try:
            return super().shows(witness, scenario)
        except AdapterError:  # what cannot be believed shows nothing
            self._adapter.restart()
            return None


class _OpenProgram(OpenTarget):
    """A started device, on which the program is run with one number after the other. Nothing is
    planted in a program, and the search has left out what holds can be without.
    """

    def __init__(
        self, device: DeviceServer, subject: ProgramSubject, options: TargetOptions
    ) -> None:
        self._device = device
        self._subject = subject
        self._options = options

    def judge(self, scenario: Script) -> TargetResult:
        argv = tuple(word.replace(NUMBER, str(scenario.seed)) for word in self._subject.argv)
        run_s = self._options.run_s or 0.0
        program = Program(argv, run_s, compiling=self._subject.compiling)
        runs_max = PROGRAM_RUNS if self._options.runs_max is None else self._options.runs_max
        judged = judge_on(self._device, program, explores=True, runs_max=runs_max, is_quiet=True)
        shown = [(one.race, one.landing) for one in judged.judged]
        return TargetResult(
            result=result_of_program(judged, shlex.join(argv)),
            witnesses=tuple(
                program_witness(race, landing, program)
                for race, landing in shown
                if landing is not None
            ),
        )


def _happening(script: Script) -> Scenario:
    return script if isinstance(script, Scenario) else happening(script)
