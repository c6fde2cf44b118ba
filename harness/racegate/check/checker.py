"""Check: runs one scenario under one schedule, with or without a fault, and asks the oracles. The
only wiring.
"""

from __future__ import annotations

import time
from enum import StrEnum
from typing import Any

import msgspec

from racegate.check.findings import (
    from_conflicts,
    from_divergence,
    from_losses,
    from_misowned,
    from_stop,
    from_violations,
)
from racegate.device.chooser import HoldChooser
from racegate.device.cuda.device import CudaDevice
from racegate.device.cuda.pacing import Pacing
from racegate.device.cuda.site import CudaSite
from racegate.device.memo import OpMemo
from racegate.device.protocol import DeadlockError, FootprintError
from racegate.device.recorder import NullRecorder
from racegate.device.stepping import Stepper
from racegate.device.virtual.blocking import BlockingDevice
from racegate.device.virtual.device import VirtualDevice
from racegate.engine.engine import AsyncEngine
from racegate.engine.model.weights import make_weights
from racegate.engine.observe.probe import NullProbe, Probe
from racegate.engine.observe.recording import RecordingProbe
from racegate.engine.state.lanes import lanes_of
from racegate.faults.fault import Fault
from racegate.history.finding import ALL_ORACLES, Finding, FindingKind, Oracle, Verdict
from racegate.history.outcome import RunResult
from racegate.history.run import EngineResult, Run
from racegate.history.schedule import EAGER, Schedule
from racegate.history.stats import make_stats, unmet_expectations, vacuous
from racegate.history.trace import HoldOutcome
from racegate.oracles.invariants import find_violations
from racegate.oracles.losslessness import find_losses
from racegate.oracles.ordering import Conflict, find_conflicts, has_unordered_query
from racegate.oracles.ownership import find_misowned
from racegate.oracles.stepwise import FLOAT_TOLERANCE, Divergence, find_divergence
from racegate.scenario.config import resolve
from racegate.scenario.errors import BadInputError
from racegate.scenario.spec import UNJUDGED, DrafterKind, Numerics, Request, Scenario
from racegate_kernels.backend import EAGER as EAGER_KERNELS
from racegate_reference.decoding import plain_decode, truth
from racegate_reference.engine import ReferenceRun, run_reference
from racegate_reference.paths import Paths

# Model seeds tried until a float scenario has no decision closer than the tolerance.
MODEL_SEEDS_MAX = 32


# A defect may drive the engine against its own assertions: that is a finding, not a failure of
# the harness.
ENGINE_ERRORS = (DeadlockError, AssertionError, LookupError, ValueError, ArithmeticError)


class CheckError(BadInputError):
    """The harness cannot judge a scenario; says why."""


class Launches(StrEnum):
    """blocking: the host waits for the whole device behind every operation it issues."""

    ASYNC = "async"
    BLOCKING = "blocking"


class Checker:
    """One scenario with its reference run, which is computed once and serves every schedule and
    fault.

    replay: the command that runs the scenario again, without fault and holds
    cuda: run on this GPU instead of the virtual device
    paths: what the reference has computed, for whoever judges many scenarios of the same requests
    """

    def __init__(
        self,
        scenario: Scenario,
        *,
        replay: str = "",
        cuda: CudaSite | None = None,
        paths: Paths | None = None,
    ) -> None:
        if not scenario.model.numerics.is_judged:
            raise CheckError(f"{scenario.name}: numerics {scenario.model.numerics} {UNJUDGED}")
        resolved = resolve(scenario)
        paths = Paths() if paths is None else paths
        self.scenario, self.reference, notes = _decidable(resolved.scenario, paths)
        self.warnings = (*resolved.warnings, *notes)
        self.lanes = lanes_of(self.scenario)
        self._replay = replay or f"racegate run {scenario.name}"
        self._cuda = cuda
        self._rehearsed: set[str | None] = set()
        self.truth = truth(self.scenario, paths=paths)
        has_mtp = self.scenario.engine.drafter is DrafterKind.MTP
        self._weights = make_weights(self.scenario.model, has_mtp=has_mtp)
        self.plain = {
            request.name: plain_decode(self.scenario, request, paths=paths)
            for request in self.scenario.requests
        }

    def execute(
        self,
        *,
        schedule: Schedule = EAGER,
        stepper: Stepper | None = None,
        fault: Fault | None = None,
        is_audited: bool = False,
        memo: OpMemo | None = None,
        launches: Launches = Launches.ASYNC,
    ) -> Run:
        """Runs the asynchronous engine once, with holds or, on the virtual device, step by step.

        is_audited, memo: mean nothing on a GPU
        """
        if self._cuda is not None:
            assert stepper is None, "only the virtual device can be stepped"
            return self._execute_on(self._cuda, schedule, fault, launches)
        device = self.device(
            fault, chooser=HoldChooser(schedule), stepper=stepper, is_audited=is_audited, memo=memo
        )
        probe = RecordingProbe(self.scenario, device, device.stream("compute"))
        started = time.perf_counter()
        result, stopped = self._guarded(device, probe, fault, launches)
        seconds = time.perf_counter() - started
        return self.as_run(device, probe, result, stopped=stopped, seconds=seconds)

    def _execute_on(
        self, site: CudaSite, schedule: Schedule, fault: Fault | None, launches: Launches
    ) -> Run:
        """One run on a GPU, after one without holds: what is done for the first time (compiling and
        loading kernels, taking memory) waits for the whole device, and for its latches with it.
        """
        name = None if fault is None else fault.name
        if name not in self._rehearsed:
            self._rehearsed.add(name)
            self._once_on(site, EAGER, fault, launches)
        return self._once_on(site, schedule, fault, launches)

    def _once_on(
        self, site: CudaSite, schedule: Schedule, fault: Fault | None, launches: Launches
    ) -> Run:
        if fault is None:
            device = site.device(self.lanes, schedule=schedule)
        else:
            device = site.device(
                self.lanes, schedule=schedule, dropped=fault.drops, exchange=fault.backend
            )
        try:
            probe = RecordingProbe(self.scenario, device, device.stream("compute"))
            started = time.perf_counter()
            result, stopped = self._guarded(device, probe, fault, launches)
            seconds = time.perf_counter() - started
        finally:
            device.close()
        return self.as_run(device, probe, result, stopped=stopped, seconds=seconds)

    def as_run(
        self,
        device: VirtualDevice | CudaDevice,
        probe: RecordingProbe,
        result: EngineResult | None,
        *,
        stopped: Exception | None = None,
        seconds: float = 0.0,
    ) -> Run:
        """What a device and a probe hold after a run."""
        return Run(
            trace=device.trace(),
            observations=probe.observations(),
            result=result,
            stopped=stopped,
            seconds=seconds,
        )

    def device(self, fault: Fault | None, **options: Any) -> VirtualDevice:
        """A virtual device, with the edges dropped and the kernels exchanged that a fault names."""
        if fault is None:
            return VirtualDevice(self.lanes, **options)
        backend = fault.backend(EAGER_KERNELS)
        return VirtualDevice(self.lanes, dropped=fault.drops, backend=backend, **options)

    def engine(self, device: Any, probe: Probe, fault: Fault | None) -> AsyncEngine:
        """The engine on a device, with or without a fault."""
        parts = None if fault is None else fault.parts(self.scenario.engine.cache_mode)
        return AsyncEngine(
            self.scenario,
            device if fault is None else fault.device(device),
            truth=self.truth,
            parts=parts,
            probe=probe,
            weights=self._weights,
        )

    def execute_bare(self) -> EngineResult:
        """Runs the engine without recording or observing anything: what the harness costs is
        measured against this.
        """
        device = VirtualDevice(self.lanes, recorder=NullRecorder(self.lanes))
        engine = AsyncEngine(
            self.scenario, device, truth=self.truth, probe=NullProbe(), weights=self._weights
        )
        result = engine.run()
        device.finish()
        return result

    def _guarded(
        self,
        device: VirtualDevice | CudaDevice,
        probe: RecordingProbe,
        fault: Fault | None,
        launches: Launches,
    ) -> tuple[EngineResult | None, Exception | None]:
        seen: Any = device
        if launches is Launches.BLOCKING:
            seen = BlockingDevice(device, self.lanes)
        try:
            result = self.engine(seen, probe, fault).run()
            device.finish()
        except ENGINE_ERRORS as error:
            return None, error
        return result, None

    def judge(
        self,
        run: Run,
        *,
        schedule: Schedule = EAGER,
        fault: Fault | None = None,
        oracles: frozenset[Oracle] = ALL_ORACLES,
    ) -> RunResult:
        """Asks the oracles about a run. oracles: one that is left out is not asked."""
        conflicts = find_conflicts(run.trace) if Oracle.ORDERING in oracles else []
        findings = self._findings(run, conflicts, oracles)
        replay = self.command(schedule, fault)
        findings = [msgspec.structs.replace(finding, replay=replay) for finding in findings]
        stats = make_stats(run, conflicts=len(conflicts))
        unmet: tuple[str, ...] = ()
        if fault is None and run.result is not None:
            unmet = unmet_expectations(self.scenario, stats)
        if run.result is not None:
            unmet += vacuous(stats)
        unmet += _unrealised(run.trace.holds)
        return RunResult(
            scenario=self.scenario.name,
            device="virtual" if self._cuda is None else "cuda",
            config=msgspec.to_builtins(
                {"model": self.scenario.model, "engine": self.scenario.engine}
            ),
            fault=None if fault is None else fault.name,
            schedule=schedule.texts(),
            verdict=_verdict(findings, unmet, run),
            findings=tuple(findings),
            stats=stats,
            holds=run.trace.holds,
            unmet=unmet,
            warnings=(*self.warnings, *_idle_events(run)),
        )

    def with_holds(
        self,
        eager: RunResult,
        schedule: Schedule,
        holds: tuple[HoldOutcome, ...],
        *,
        fault: Fault | None,
    ) -> RunResult:
        """The eager result, for a schedule that was found to change nothing."""
        unmet = eager.unmet + _unrealised(holds)
        verdict = eager.verdict
        if verdict is Verdict.PROVED and unmet:
            verdict = Verdict.INCONCLUSIVE
        command = self.command(schedule, fault)
        return msgspec.structs.replace(
            eager,
            schedule=schedule.texts(),
            holds=holds,
            unmet=unmet,
            verdict=verdict,
            findings=tuple(msgspec.structs.replace(f, replay=command) for f in eager.findings),
        )

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

    def _findings(
        self, run: Run, conflicts: list[Conflict], oracles: frozenset[Oracle]
    ) -> list[Finding]:
        """Causes before effects: orders, owners, steps, invariants, outputs."""
        findings = from_conflicts(conflicts, run.observations)
        if Oracle.OWNERSHIP in oracles:
            findings += from_misowned(find_misowned(run.trace))
        if Oracle.STEPWISE in oracles:
            findings += from_divergence(self._divergence(run))
        if Oracle.INVARIANTS in oracles:
            findings += from_violations(find_violations(run.observations, self.scenario))
        if Oracle.LOSSLESSNESS in oracles and run.result is not None:
            losses = find_losses(run.result.delivered, self.plain, run.result.finished)
            findings += from_losses(losses)
        findings += from_stop(run.stopped)
        return findings

    def _divergence(self, run: Run) -> Divergence | None:
        """Where the run leaves the reference; up to where it stopped, if it did."""
        observed, expected = run.observations, self.reference.observations
        if run.stopped is not None:
            common = min(len(observed), len(expected))
            observed, expected = observed[:common], expected[:common]
        return find_divergence(observed, expected)

    def command(self, schedule: Schedule, fault: Fault | None) -> str:
        parts = [self._replay]
        if self._cuda is not None:
            parts.append("--device cuda")
            if self._cuda.pacing is not Pacing.EAGER:
                parts.append(f"--pacing {self._cuda.pacing}")
        if fault is not None:
            parts.append(f"--fault {fault.name}")
        parts += [f'--hold "{text}"' for text in schedule.texts()]
        return " ".join(parts)


class Checkers:
    """Makes checkers of many scenarios: what the reference computes for one serves all."""

    def __init__(self) -> None:
        self._paths = Paths()

    def of(self, scenario: Scenario, *, replay: str = "", cuda: CudaSite | None = None) -> Checker:
        """A checker of one scenario. Raises CheckError as Checker does."""
        return Checker(scenario, replay=replay, cuda=cuda, paths=self._paths)


def plain_tokens(scenario: Scenario, request: Request) -> tuple[int, ...]:
    """What plain decoding on the CPU delivers for a request, by the reference."""
    return plain_decode(scenario, request)


def _decidable(scenario: Scenario, paths: Paths) -> tuple[Scenario, ReferenceRun, tuple[str, ...]]:
    """The scenario with the first model seed whose decisions are all farther apart than the float
    tolerance.
    """
    first = scenario.model.seed
    for seed in range(first, first + MODEL_SEEDS_MAX):
        model = msgspec.structs.replace(scenario.model, seed=seed)
        candidate = msgspec.structs.replace(scenario, model=model)
        reference = run_reference(candidate, paths=paths)
        if scenario.model.numerics is Numerics.EXACT or reference.margin > FLOAT_TOLERANCE:
            note = f"model seed {first} has a decision within the tolerance; seed {seed} is used"
            return candidate, reference, () if seed == first else (note,)
    raise CheckError(
        f"{scenario.name}: none of the model seeds {first}..{seed} keeps every "
        f"decision farther apart than {FLOAT_TOLERANCE}; use a smaller vocabulary or fewer tokens"
    )


def _unrealised(holds: tuple[HoldOutcome, ...]) -> tuple[str, ...]:
    return tuple(f"hold '{hold.hold}' was not realised" for hold in holds if not hold.realised)


def _idle_events(run: Run) -> tuple[str, ...]:
    if run.result is None:
        return ()
    return tuple(f"event had no effect: {event}" for event in run.result.unmet_events)


def _verdict(findings: list[Finding], unmet: tuple[str, ...], run: Run) -> Verdict:
    kinds = {finding.kind for finding in findings}
    if isinstance(run.stopped, FootprintError):
        return Verdict.BROKEN_HARNESS
    if FindingKind.DEADLOCK in kinds:
        return Verdict.DEADLOCK
    if kinds - {FindingKind.CONFLICT}:
        return Verdict.DIVERGENT
    if kinds:
        return Verdict.CONFLICT
    if unmet or has_unordered_query(run.trace):
        return Verdict.INCONCLUSIVE
    return Verdict.PROVED
