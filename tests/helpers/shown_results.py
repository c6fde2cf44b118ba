"""What a target shows with a scenario, for tests of those who count it."""

from __future__ import annotations

from racegate.history.finding import Finding, FindingKind, Verdict
from racegate.history.outcome import RunResult
from racegate.history.stats import Stats
from racegate.history.witness import EngineSubject, Witness
from racegate.jobs.foreign.opened import TargetResult
from racegate.scenario.spec import OwnScenario


def shown_by(scenario: OwnScenario, signature: str | None) -> TargetResult:
    """A wrong value with this signature and its witness, or nothing."""
    verdict = Verdict.DIVERGENT if signature else Verdict.PROVED
    findings = ()
    witnesses: tuple[Witness, ...] = ()
    if signature:
        findings = (Finding(kind=FindingKind.DIVERGENCE, signature=signature, message="wrong"),)
        witness = Witness(
            title=scenario.title,
            scenario=scenario,
            holds=(),
            subject=EngineSubject(fault=None, device="virtual", seed=scenario.seed),
            signature=signature,
            verdict=verdict,
            digest="",
            versions={},
        )
        witnesses = (witness,)
    result = RunResult(
        scenario=scenario.name,
        device="virtual",
        verdict=verdict,
        findings=findings,
        stats=Stats(schedules=1, delivered=1),
    )
    return TargetResult(result=result, witnesses=witnesses)
