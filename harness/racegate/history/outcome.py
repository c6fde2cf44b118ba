"""Outcome: one judged run as data; the `run` object of the JSON contract (docs/json.md)."""

from __future__ import annotations

import msgspec

from racegate.history.finding import Finding, Verdict
from racegate.history.stats import Stats
from racegate.history.trace import HoldOutcome

SCHEMA = "racegate/1"


class SearchSummary(msgspec.Struct, frozen=True, kw_only=True):
    """How a verdict was searched for. classes, estimate: of equivalent schedules, if enumerated.

    first_conflicts: conflicts of the eager run, which comes first
    stage: the last rung of the ladder that was needed
    seconds_left: what running the estimated remaining classes would take
    """

    first_conflicts: int
    stage: str
    schedules: int
    classes: int | None
    estimate: float | None
    is_complete: bool
    seconds: float
    seconds_left: float | None


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """One scenario judged. Serialises to the `run` object of the JSON contract (docs/json.md)."""

    scenario: str
    device: str
    config: dict[str, dict[str, object]]
    fault: str | None
    schedule: tuple[str, ...]
    verdict: Verdict
    findings: tuple[Finding, ...]
    stats: Stats
    holds: tuple[HoldOutcome, ...]
    unmet: tuple[str, ...]
    warnings: tuple[str, ...]
    search: SearchSummary | None = None


def run_object(result: RunResult) -> dict[str, object]:
    """The `run` object of the JSON contract."""
    return {"schema": SCHEMA, **msgspec.to_builtins(result)}
