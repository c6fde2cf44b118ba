"""Cells of the kill matrix: what one seeded fault shows under one look, or under one strategy."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from racegate.faults.fault import Fault, FaultKind
from racegate.history.finding import Finding, FindingKind, Oracle, signature_of
from racegate.history.outcome import RunResult
from racegate.scenario.strict import StrictStruct


class Look(StrEnum):
    """What a run can be judged by: each oracle alone, that it came to its end at all, and what a
    test sees that compares only the final tokens, in all runs or in those of natural timing.
    """

    ORDERING = "ordering"
    OWNERSHIP = "ownership"
    STEPWISE = "stepwise"
    INVARIANTS = "invariants"
    LOSSLESSNESS = "losslessness"
    STOPPED = "stopped"
    FINAL_TOKENS = "final_tokens"
    FINAL_TOKENS_NATURAL = "final_tokens_natural"


ORACLE_LOOKS = tuple(Look(oracle.value) for oracle in Oracle)
# What speaks by itself; the final tokens are for comparison.
SPEAKING = (*ORACLE_LOOKS, Look.STOPPED)


class Strategy(StrEnum):
    """Which schedules are run.

    eager, late: one schedule; lane_late: one per lane; reversals: the eager run, then one hold per
        conflict in it; dpor, pos, random: up to a budget
    sync_everywhere: natural order, the host waiting for the device behind every operation
    """

    EAGER = "eager"
    LATE = "late"
    LANE_LATE = "lane_late"
    REVERSALS = "reversals"
    DPOR = "dpor"
    POS = "pos"
    RANDOM = "random"
    SYNC_EVERYWHERE = "sync_everywhere"


class Sight(StrictStruct, frozen=True, kw_only=True):
    """The first run in which a fault shows.

    scenario, holds: the run (holds of a sampled run are the canonical ones)
    schedules, seconds: made and taken until then, this run included
    signature: of the finding; field: the first that differs from the reference in that run, None if
        none does; is_expected: whether it is the one that the catalogue names, None without a field
    """

    scenario: str
    holds: tuple[str, ...]
    schedules: int
    seconds: float
    signature: str
    field: str | None
    is_expected: bool | None


class OracleCell(StrictStruct, frozen=True, kw_only=True):
    """One fault under one look.

    runs, seen: runs judged, and those in which this look saw something; first: the first of them
    alone: runs (scenario, timing) of which it alone has something to say
    alone_without_stepwise: the same if the stepwise oracle is silent, as it is about a defect that
        the reference has too
    """

    runs: int
    seen: int
    first: Sight | None
    alone: tuple[str, ...] = ()
    alone_without_stepwise: tuple[str, ...] = ()


class StrategyCell(StrictStruct, frozen=True, kw_only=True):
    """One fault under one strategy: it stops at the first wrong value.

    schedules, seconds: made and taken in all; flagged: schedules until the ordering oracle spoke
    kill: the first wrong value (an order alone is none)
    """

    schedules: int
    seconds: float
    flagged: int | None
    kill: Sight | None


class MatrixRow(StrictStruct, frozen=True, kw_only=True):
    """One fault. shown: its first script under the holds of the catalogue; None for a control.

    kind: what kind of defect; needs: what a scenario has to have for it
    expect: the field that the catalogue expects to differ first
    oracles: what each look sees of it; strategies: what each strategy needs to find it
    """

    fault: str
    number: int
    kind: FaultKind
    needs: tuple[str, ...]
    origin: str
    summary: str
    expect: str
    shown: Sight | None
    oracles: dict[Look, OracleCell]
    strategies: dict[Strategy, StrategyCell]


def first_field(findings: Sequence[Finding]) -> str | None:
    """The first field that differs from the reference; that of a page, if no value does."""
    kinds = (FindingKind.DIVERGENCE, FindingKind.MISMATCH)
    found = [f.field for f in findings if f.kind in kinds]
    found += [f.field for f in findings if f.kind is FindingKind.PAGE]
    return found[0] if found else None


def is_expected(fault: Fault, field: str | None) -> bool | None:
    """Whether a first field is the one that the catalogue names; None without a field."""
    return None if field is None else field == fault.expect


def sight_of(fault: Fault, result: RunResult, *, schedules: int, seconds: float) -> Sight | None:
    """What a result shows of a fault; None if nothing is wrong but an order."""
    if all(finding.kind is FindingKind.CONFLICT for finding in result.findings):
        return None
    field = first_field(result.findings)
    return Sight(
        scenario=result.scenario,
        holds=result.schedule,
        schedules=schedules,
        seconds=seconds,
        signature=signature_of(result.findings) or "",
        field=field,
        is_expected=is_expected(fault, field),
    )
