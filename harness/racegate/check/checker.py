"""Checker: one scenario to run and to judge, under any schedule, with or without a fault. What the
rooms above use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from racegate.check.command import ReplayCommand
from racegate.check.expected import CheckError, expected_of
from racegate.check.judge import Judge, Judged
from racegate.check.subject import (
    CudaExecution,
    LaunchMode,
    RunSettings,
    Subject,
    VirtualExecution,
)
from racegate.device.cuda.site import CudaSite
from racegate.device.stepping import Stepper
from racegate.device.virtual.memo import OpMemo
from racegate.faults.fault import Fault
from racegate.history.finding import ALL_ORACLES, Oracle
from racegate.history.outcome import RunResult
from racegate.history.run import Run
from racegate.history.schedule import EAGER, Schedule
from racegate.history.trace import HoldOutcome
from racegate.oracles.recall import Recall
from racegate.scenario.spec import OwnScenario
from racegate_reference.engine import ReferenceRun
from racegate_reference.paths import Paths


class Checker:
    """One scenario with its reference run, which is computed once and serves every schedule and
    fault. Raises CheckError.

    replay: the command that runs the scenario again, without fault and holds
    cuda: run on this GPU instead of the virtual device
    paths: what the reference has computed, for whoever judges many scenarios of the same requests
    """

    def __init__(
        self,
        scenario: OwnScenario,
        *,
        replay: str = "",
        cuda: CudaSite | None = None,
        paths: Paths | None = None,
    ) -> None:
        if cuda is not None and scenario.engine.ranks > 1:
            raise CheckError(
                f"{scenario.name}: {scenario.engine.ranks} ranks meet on the virtual device alone; "
                "leave out --device cuda"
            )
        self._expected = expected_of(scenario, Paths() if paths is None else paths)
        self.subject = Subject(self._expected.scenario, self._expected.truth)
        self._execution: VirtualExecution | CudaExecution = (
            VirtualExecution(self.subject) if cuda is None else CudaExecution(self.subject, cuda)
        )
        self._command = ReplayCommand(
            base=replay or f"racegate run {scenario.name}", options=self._execution.options
        )
        self._judge = Judge(self._expected, self._command, device=self._execution.device)

    @property
    def scenario(self) -> OwnScenario:
        """As it is run: resolved, with a model seed that can be decided."""
        return self._expected.scenario

    @property
    def reference(self) -> ReferenceRun:
        """The run of the reference engine."""
        return self._expected.reference

    @property
    def plain(self) -> Mapping[str, tuple[int, ...]]:
        """Request -> the tokens that plain decoding delivers."""
        return self._expected.plain

    @property
    def lanes(self) -> tuple[str, ...]:
        """The streams of the device."""
        return self.subject.lanes

    def execute(
        self,
        *,
        schedule: Schedule = EAGER,
        stepper: Stepper | None = None,
        fault: Fault | None = None,
        is_audited: bool = False,
        memo: OpMemo | None = None,
        launches: LaunchMode = LaunchMode.ASYNC,
        on_landing: Callable[[str], None] | None = None,
    ) -> Run:
        """Runs the asynchronous engine once, with holds or, on the virtual device, step by step.

        is_audited, memo, on_landing: mean nothing on a GPU
        """
        return self._execution.run(
            RunSettings(
                schedule=schedule,
                fault=fault,
                launches=launches,
                stepper=stepper,
                is_audited=is_audited,
                memo=memo,
                on_landing=on_landing,
            )
        )

    def judged(
        self,
        run: Run,
        *,
        schedule: Schedule = EAGER,
        fault: Fault | None = None,
        oracles: frozenset[Oracle] = ALL_ORACLES,
        recall: Recall | None = None,
    ) -> Judged:
        """A run with what the oracles say. oracles: one that is left out is not asked.

        recall: what they said about other runs of the program
        """
        judge = self._judge
        return judge.judged(run, schedule=schedule, fault=fault, oracles=oracles, recall=recall)

    def judge(
        self,
        run: Run,
        *,
        schedule: Schedule = EAGER,
        fault: Fault | None = None,
        oracles: frozenset[Oracle] = ALL_ORACLES,
    ) -> RunResult:
        """What the oracles say about a run."""
        return self.judged(run, schedule=schedule, fault=fault, oracles=oracles).result

    def run(
        self,
        *,
        schedule: Schedule = EAGER,
        fault: Fault | None = None,
        is_audited: bool = False,
        memo: OpMemo | None = None,
    ) -> RunResult:
        """Runs and judges."""
        run = self.execute(schedule=schedule, fault=fault, is_audited=is_audited, memo=memo)
        return self.judge(run, schedule=schedule, fault=fault)

    def run_judged(
        self, *, schedule: Schedule = EAGER, fault: Fault | None = None, is_audited: bool = False
    ) -> Judged:
        """Runs and judges, and keeps the run."""
        run = self.execute(schedule=schedule, fault=fault, is_audited=is_audited)
        return self.judged(run, schedule=schedule, fault=fault)

    def with_holds(
        self,
        eager: RunResult,
        schedule: Schedule,
        holds: tuple[HoldOutcome, ...],
        *,
        fault: Fault | None,
    ) -> RunResult:
        return self._judge.with_holds(eager, schedule, holds, fault=fault)

    def command(self, schedule: Schedule, fault: Fault | None) -> str:
        """The command that makes a run again."""
        return self._command.text(schedule, fault)


class Checkers:
    """Makes checkers of many scenarios: what the reference computes for one serves all."""

    def __init__(self) -> None:
        self._paths = Paths()

    def of(
        self, scenario: OwnScenario, *, replay: str = "", cuda: CudaSite | None = None
    ) -> Checker:
        """A checker of one scenario. Raises CheckError as Checker does."""
        return Checker(scenario, replay=replay, cuda=cuda, paths=self._paths)
