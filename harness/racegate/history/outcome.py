"""Outcome: one judged run as data; the `run` object of the JSON contract (docs/json.md)."""

from __future__ import annotations

import msgspec

from racegate.history.breakage import Breakage
from racegate.history.finding import Finding, Verdict
from racegate.history.stats import Stats
from racegate.history.trace import HoldOutcome

SCHEMA = "racegate/1"


class SearchSummary(msgspec.Struct, frozen=True, kw_only=True):
    """How a verdict was searched for.

    first_conflicts: conflicts of the eager run, which comes first
    stage: the last rung of the ladder that was needed
    classes: of equivalent schedules, run so far; estimate: of all of them; None if not enumerated
    is_complete: every class was run
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
    """One scenario judged under one schedule.

    schedule: the holds, as text; holds: what became of each
    search: how the verdict was searched for, None for a single run
    breakages: errors of the harness: what it has found stays, what it has not nobody knows
    """

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
    breakages: tuple[Breakage, ...] = ()


UNAUDITED = (
    "footprints were not audited: that operations touch only the rows they declare is assumed, and "
    "was not checked"
)


def unaudited(result: RunResult) -> RunResult:
    """The result of a run without an audit, which says so."""
    return msgspec.structs.replace(result, warnings=(*result.warnings, UNAUDITED))


def run_object(result: RunResult) -> dict[str, object]:
    """The `run` object of the JSON contract."""
    return {"schema": SCHEMA, **msgspec.to_builtins(result)}
