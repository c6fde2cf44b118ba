"""The search: whether some landing that the program's edges allow changes what it observes.

Each conflict says which operation may come after which access. The operation is held back in a run
of its own, and the observations are compared with those of the run in which nothing was held.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from itertools import product

import msgspec

from racegate.interpose.device.session import OTHER_THREADS
from racegate.interpose.launch import Device, Program
from racegate.interpose.order.findings import Finding
from racegate.interpose.outcome import Observation, Outcome, Plan

FORCED = "forced"
QUERIES = "completion queries that no edge settles (the other answer is a branch)"
POLLS = 3  # how often a query is first answered "not ready", in runs that try that answer
PAIRS_MAX = 8  # per finding, tried one at a time
Holds = tuple[tuple[str, str], ...]


class Verdict(StrEnum):
    """DIVERGENT: a landing changes an observation. BENIGN: every landing was tried, none does.
    CONFLICT: an order is missing, and no run made so far came out differently.
    """

    DIVERGENT = "DIVERGENT"
    BENIGN = "BENIGN"
    CONFLICT = "CONFLICT"


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """What the search says of one finding. hold: the smallest one that shows it."""

    signature: str
    verdict: Verdict
    hold: Holds = ()
    expected: tuple[Observation, ...] = ()
    actual: tuple[Observation, ...] = ()
    ending: str = ""


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """is_complete: every combination of landings was run; runs: how many were made."""

    judged: tuple[Judged, ...]
    runs: int
    is_complete: bool


def search(device: Device, program: Program, base: Outcome, *, runs_max: int) -> Search:
    """base: the outcome of the run in which every operation ran at once."""
    firsts = _landings(base.findings)
    tried: dict[Holds, Outcome] = {}
    polls = POLLS if QUERIES in base.not_seen else 0

    def run(holds: Holds) -> Outcome:
        if holds not in tried:
            plan = Plan(holds=holds, polls=polls, is_recording=False)
            tried[holds] = device.run(program, plan, is_quiet=True)
        return tried[holds]

    divergent: dict[str, Holds] = {}
    for finding in base.findings:
        for holds in _alone(finding, firsts):
            if len(tried) < runs_max and run(holds).seen != base.seen:
                divergent[finding.signature] = holds
                break
    is_complete = OTHER_THREADS not in base.not_seen and not any(
        _has_more_orders(finding) for finding in base.findings
    )
    if len(divergent) < len(base.findings):
        for holds in _together(firsts):
            if len(tried) >= runs_max:
                is_complete = False
                break
            if holds and run(holds).seen != base.seen:
                _blame(base, holds, divergent)
    is_complete = is_complete and all(_is_realised(outcome) for outcome in tried.values())
    judged = tuple(
        _judge(f, base, tried, divergent, is_complete=is_complete) for f in base.findings
    )
    return Search(judged=judged, runs=len(tried), is_complete=is_complete)


def _landings(findings: tuple[Finding, ...]) -> dict[str, tuple[str, ...]]:
    """Per operation that can be held, before which accesses it may land, latest last."""
    landings: dict[str, list[str]] = {}
    for finding in findings:
        if finding.first.is_host:
            continue
        for first, second in finding.pairs:
            landings.setdefault(first, []).append(second)
    return {first: (*dict.fromkeys(seconds[1:]), FORCED) for first, seconds in landings.items()}


def _alone(finding: Finding, firsts: dict[str, tuple[str, ...]]) -> Iterator[Holds]:
    """One operation of the finding held, as long as it may be."""
    for first in list(dict.fromkeys(first for first, _ in finding.pairs))[:PAIRS_MAX]:
        for until in reversed(firsts.get(first, ())):
            yield ((first, until),)


def _together(firsts: dict[str, tuple[str, ...]]) -> Iterator[Holds]:
    """All at once, then every combination of landings."""
    yield tuple((first, FORCED) for first in firsts)
    choices = [[None, *((first, until) for until in untils)] for first, untils in firsts.items()]
    for combination in product(*choices):
        yield tuple(hold for hold in combination if hold is not None)


def _blame(base: Outcome, holds: Holds, divergent: dict[str, Holds]) -> None:
    held = {operation for operation, _ in holds}
    for finding in base.findings:
        if any(first in held for first, _ in finding.pairs):
            divergent.setdefault(finding.signature, holds)


def _has_more_orders(finding: Finding) -> bool:
    """Whether holding the first operation back is not all that could happen: a thread cannot be
    held, and the parts of a graph run at times of their own.
    """
    return finding.first.is_host or "graph" in (finding.first.operation, finding.second.operation)


def _is_realised(outcome: Outcome) -> bool:
    """Whether each hold of the run kept something back: else the run tried nothing."""
    return all(outcome.realised.values())


def _judge(
    finding: Finding,
    base: Outcome,
    tried: dict[Holds, Outcome],
    divergent: dict[str, Holds],
    *,
    is_complete: bool,
) -> Judged:
    holds = divergent.get(finding.signature)
    if holds is not None:
        return Judged(
            signature=finding.signature,
            verdict=Verdict.DIVERGENT,
            hold=holds,
            expected=base.observations,
            actual=tried[holds].observations,
            ending=tried[holds].message,
        )
    is_benign = is_complete and bool(base.observations)
    verdict = Verdict.BENIGN if is_benign else Verdict.CONFLICT
    return Judged(signature=finding.signature, verdict=verdict)
