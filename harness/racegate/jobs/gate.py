"""The gate: every scenario of a folder through the oracles, what must fail, the gate's own checks,
and one verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from racegate.check.checker import Checker
from racegate.check.selfcheck import (
    Look,
    SelfCheck,
    TwiceRun,
    chosen_twice,
    plant_canaries,
    together,
)
from racegate.faults.fault import Fault
from racegate.history.finding import Verdict, exit_code
from racegate.history.outcome import SCHEMA, RunResult
from racegate.history.witness import Witness
from racegate.repro.replay import Outcome, replay
from racegate.scenario.spec import Scenario


class GateStats(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over the scenarios."""

    scenarios: int
    steps: int
    ops: int
    conflicts: int
    findings: int
    schedules: int
    seconds: float


class MustFail(msgspec.Struct, frozen=True, kw_only=True):
    """A witness that has to show what it was recorded for.

    witness: path of its file; outcome: what it showed
    """

    witness: str
    fault: str | None
    expected_signature: str
    signature: str | None
    outcome: Outcome

    @property
    def is_missed(self) -> bool:
        return self.outcome is not Outcome.REPRODUCED


class GateResult(msgspec.Struct, frozen=True, kw_only=True):
    """A whole gate.

    scenarios: every run; must_fail: witnesses that had to fail, empty without the option
    unmet: what no scenario exercised
    """

    schema: str
    verdict: Verdict
    scenarios: tuple[RunResult, ...]
    must_fail: tuple[MustFail, ...]
    selfcheck: SelfCheck
    unmet: tuple[str, ...]
    stats: GateStats

    @property
    def exit_code(self) -> int:
        """As for its scenarios; a witness that must fail and did not is a finding."""
        if self.verdict is Verdict.BROKEN_HARNESS:
            return 3
        if any(entry.is_missed for entry in self.must_fail):
            return 1
        return exit_code([self.verdict])


def run_gate(
    scenarios: Sequence[tuple[Path, Scenario]],
    *,
    must_fail: Sequence[tuple[Path, Witness]] = (),
    look: Look,
    fault: Fault | None = None,
    seed: int = 0,
    on_done: Callable[[str], None],
) -> GateResult:
    """Looks at every scenario and every witness, and calls back with the name of each. The canaries
    come last: what went before may have broken something.
    """
    results: list[RunResult] = []
    checks: list[SelfCheck] = []
    twice = chosen_twice([scenario.name for _, scenario in scenarios], seed=seed)
    for path, scenario in scenarios:
        checker = Checker(scenario, replay=f"racegate run {path}")
        run = TwiceRun(checker, fault) if scenario.name in twice else None
        results.append(look(checker, fault))
        if run is not None:
            checks.append(run.again())
        on_done(scenario.name)
    missed = [_replayed(path, witness, on_done) for path, witness in must_fail]
    checks.append(plant_canaries(look))
    return _as_result(results, missed, together(checks))


def _replayed(path: Path, witness: Witness, on_done: Callable[[str], None]) -> MustFail:
    result = replay(witness, times=1, command=f"racegate replay {path}")
    on_done(path.name)
    return MustFail(
        witness=str(path),
        fault=witness.fault,
        expected_signature=witness.signature,
        signature=result.signature,
        outcome=result.outcome,
    )


def _as_result(
    results: Sequence[RunResult], must_fail: Sequence[MustFail], selfcheck: SelfCheck
) -> GateResult:
    unmet = _unmet(results)
    verdicts = [result.verdict for result in results]
    if not selfcheck.is_sound:
        verdicts.append(Verdict.BROKEN_HARNESS)
    if unmet or any(entry.is_missed for entry in must_fail):
        verdicts.append(Verdict.INCONCLUSIVE)
    return GateResult(
        schema=SCHEMA,
        verdict=_worst(verdicts),
        scenarios=tuple(results),
        must_fail=tuple(must_fail),
        selfcheck=selfcheck,
        unmet=unmet,
        stats=GateStats(
            scenarios=len(results),
            steps=sum(result.stats.steps for result in results),
            ops=sum(result.stats.ops for result in results),
            conflicts=sum(result.stats.conflicts for result in results),
            findings=sum(len(result.findings) for result in results),
            schedules=sum(result.stats.schedules for result in results),
            seconds=sum(result.stats.seconds for result in results),
        ),
    )


def _unmet(results: Sequence[RunResult]) -> tuple[str, ...]:
    """What the gate as a whole did not exercise: without overlap nothing asynchronous was tried."""
    if any(result.stats.overlapped_ops for result in results):
        return ()
    return ("overlapped_ops: 0 in all scenarios: nothing ran while the host prepared a later step",)


# What outweighs what in the verdict of many.
_ORDER = (
    Verdict.BROKEN_HARNESS,
    Verdict.DEADLOCK,
    Verdict.DIVERGENT,
    Verdict.CONFLICT,
    Verdict.INCONCLUSIVE,
    Verdict.BENIGN,
    Verdict.PROVED,
)


def _worst(verdicts: list[Verdict]) -> Verdict:
    return min(verdicts, key=_ORDER.index, default=Verdict.INCONCLUSIVE)
