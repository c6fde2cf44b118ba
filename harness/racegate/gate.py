"""The gate: every scenario of a folder through the oracles, and one verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from racegate.check import Checker, RunResult
from racegate.scenario import Scenario, ScenarioError
from racegate.scenario_file import load
from racegate.verdict import Verdict

SCHEMA = "racegate/1"


class GateStats(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over the scenarios."""

    scenarios: int
    steps: int
    ops: int
    conflicts: int
    findings: int
    schedules: int
    seconds: float


class GateResult(msgspec.Struct, frozen=True, kw_only=True):
    """Serialises to the `gate` object of the JSON contract."""

    schema: str
    verdict: Verdict
    scenarios: tuple[RunResult, ...]
    stats: GateStats


def scenario_paths(folder: Path) -> list[Path]:
    """The scenario files of a folder, by name. Raises ScenarioError if there are none."""
    paths = sorted(folder.glob("*.toml"))
    if not paths:
        raise ScenarioError(
            str(folder), "$", "no *.toml here; name the folder of the scripts with --scenarios"
        )
    return paths


def load_all(paths: Sequence[Path]) -> list[tuple[Path, Scenario]]:
    """All scenarios, before any is run: a bad file stops the gate at once. Raises ScenarioError."""
    return [(path, load(path)) for path in paths]


def run_gate(
    scenarios: Sequence[tuple[Path, Scenario]],
    *,
    look: Callable[[Checker], RunResult],
    on_result: Callable[[RunResult], None],
) -> GateResult:
    """Looks at every scenario, and calls back after each."""
    results = []
    for path, scenario in scenarios:
        result = look(Checker(scenario, replay=f"racegate run {path}"))
        on_result(result)
        results.append(result)
    return GateResult(
        schema=SCHEMA,
        verdict=_worst([result.verdict for result in results]),
        scenarios=tuple(results),
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


def run_object(result: RunResult) -> dict[str, Any]:
    """The `run` object of the JSON contract."""
    return {"schema": SCHEMA, **msgspec.to_builtins(result)}
