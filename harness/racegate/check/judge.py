"""Judge: asks the oracles about a run, and says what is known of the scenario after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from racegate.check.command import ReplayCommand
from racegate.check.expected import Expected
from racegate.check.findings import from_divergence, from_stop, from_violations
from racegate.device.protocol import FootprintError
from racegate.faults.fault import Fault
from racegate.history.finding import ALL_ORACLES, Finding, FindingKind, Oracle, Verdict
from racegate.history.outcome import RunResult
from racegate.history.run import Run
from racegate.history.schedule import EAGER, Schedule
from racegate.history.stats import make_stats, unmet_expectations, vacuous
from racegate.history.trace import HoldOutcome
from racegate.oracles.findings import from_conflicts, from_losses, from_misowned
from racegate.oracles.invariants import find_violations
from racegate.oracles.losslessness import find_losses
from racegate.oracles.ordering import Conflict, find_conflicts, has_unordered_query
from racegate.oracles.ownership import find_misowned
from racegate.oracles.stepwise import Divergence, find_divergence


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A run, what is said about it, and the pairs of accesses that nothing orders."""

    run: Run
    result: RunResult
    conflicts: tuple[Conflict, ...]


class Judge:
    """Judges runs of one scenario. device: what results call the device they were made on."""

    def __init__(self, expected: Expected, command: ReplayCommand, *, device: str) -> None:
        self._expected = expected
        self._command = command
        self._device = device

    def judged(
        self,
        run: Run,
        *,
        schedule: Schedule = EAGER,
        fault: Fault | None = None,
        oracles: frozenset[Oracle] = ALL_ORACLES,
    ) -> Judged:
        """Asks the oracles about a run. oracles: one that is left out is not asked."""
        conflicts = find_conflicts(run.trace) if Oracle.ORDERING in oracles else []
        command = self._command.text(schedule, fault)
        findings = _naming(self._findings(run, conflicts, oracles), command)
        scenario = self._expected.scenario
        stats = make_stats(run, conflicts=len(conflicts))
        unmet: tuple[str, ...] = ()
        if fault is None and run.result is not None:
            unmet = unmet_expectations(scenario, stats)
        if run.result is not None:
            unmet += vacuous(stats)
        unmet += _unrealised(run.trace.holds)
        result = RunResult(
            scenario=scenario.name,
            device=self._device,
            config=msgspec.to_builtins({"model": scenario.model, "engine": scenario.engine}),
            fault=None if fault is None else fault.name,
            schedule=schedule.texts(),
            verdict=_verdict(findings, unmet, run),
            findings=findings,
            stats=stats,
            holds=run.trace.holds,
            unmet=unmet,
            warnings=(*self._expected.warnings, *_idle_events(run)),
        )
        return Judged(run=run, result=result, conflicts=tuple(conflicts))

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
        return msgspec.structs.replace(
            eager,
            schedule=schedule.texts(),
            holds=holds,
            unmet=unmet,
            verdict=verdict,
            findings=_naming(eager.findings, self._command.text(schedule, fault)),
        )

    def _findings(
        self, run: Run, conflicts: list[Conflict], oracles: frozenset[Oracle]
    ) -> list[Finding]:
        """Causes before effects: orders, owners, steps, invariants, outputs."""
        findings = from_conflicts(conflicts, run)
        if Oracle.OWNERSHIP in oracles:
            findings += from_misowned(find_misowned(run.trace))
        if Oracle.STEPWISE in oracles:
            findings += from_divergence(self._divergence(run))
        if Oracle.INVARIANTS in oracles:
            findings += from_violations(find_violations(run.observations, self._expected.scenario))
        if Oracle.LOSSLESSNESS in oracles and run.result is not None:
            losses = find_losses(run.result.delivered, self._expected.plain, run.result.finished)
            findings += from_losses(losses)
        findings += from_stop(run.stopped)
        return findings

    def _divergence(self, run: Run) -> Divergence | None:
        """Where the run leaves the reference; up to where it stopped, if it did."""
        observed, expected = run.observations, self._expected.reference.observations
        if run.stopped is not None:
            common = min(len(observed), len(expected))
            observed, expected = observed[:common], expected[:common]
        return find_divergence(observed, expected)


def _naming(findings: Sequence[Finding], command: str) -> tuple[Finding, ...]:
    """The findings with the command that shows them again."""
    return tuple(msgspec.structs.replace(finding, replay=command) for finding in findings)


def _unrealised(holds: tuple[HoldOutcome, ...]) -> tuple[str, ...]:
    return tuple(f"hold '{hold.hold}' was not realised" for hold in holds if not hold.realised)


def _idle_events(run: Run) -> tuple[str, ...]:
    if run.result is None:
        return ()
    return tuple(f"event had no effect: {event}" for event in run.result.unmet_events)


def _verdict(findings: Sequence[Finding], unmet: tuple[str, ...], run: Run) -> Verdict:
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
