"""Explain: why two operations race, or by which edges they do not; and which one hold makes the
difference.

A program's edges are host order, issue, stream order, records and waits. A wrong theory of a race
is refuted with the path that orders the pair, not ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from racegate.check.checker import Checker
from racegate.explore.ladder import reversals
from racegate.faults.fault import Fault
from racegate.history.finding import Finding, FindingKind
from racegate.history.schedule import EAGER, LATE, Schedule
from racegate.history.trace import Conflict, Trace
from racegate.oracles.missing_edge import late_wait
from racegate.oracles.ordering import find_conflicts
from racegate.oracles.paths import EdgeGraph, ExplainError, Ordered, PathStep


class Racing(msgspec.Struct, frozen=True, kw_only=True):
    """The pair is not ordered.

    first: the operation issued first; second: the one that may overtake it
    rows: that both touch; late_wait: the wait that would do, but stands too late
    would_protect: a path of edges that would order them
    """

    first: str
    second: str
    buffer: str
    rows: tuple[int, ...]
    late_wait: str | None
    would_protect: tuple[PathStep, ...]


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Two schedules that differ in one hold. passing: the holds of one that goes right
    failing: the holds of one that goes wrong; hold: the one that decides
    """

    passing: tuple[str, ...]
    failing: tuple[str, ...]
    hold: str


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a failure happens. race: the unordered pair behind it, None for a defect of logic
    message: what goes wrong, in words; difference: the one hold that decides, None if none does
    """

    race: Racing | None
    message: str
    difference: Difference | None


Explained: TypeAlias = Explanation | Ordered | Racing


def explain_failure(checker: Checker, schedule: Schedule, fault: Fault | None) -> Explanation:
    """The race behind a failing schedule, and the one hold that decides. Raises ExplainError."""
    run = checker.execute(schedule=schedule, fault=fault)
    judged = checker.judged(run, schedule=schedule, fault=fault)
    findings = judged.result.findings
    wrong = [f for f in findings if f.kind is not FindingKind.CONFLICT] or findings
    if not wrong:
        raise ExplainError("nothing goes wrong under this schedule: there is nothing to explain")
    conflict = _decisive(judged.conflicts, schedule)
    return Explanation(
        race=None if conflict is None else explain_conflict(run.trace, conflict),
        message=wrong[-1 if wrong[0].kind is FindingKind.OWNERSHIP else 0].message,
        difference=one_hold_difference(checker, schedule, fault),
    )


def _decisive(conflicts: Sequence[Conflict], schedule: Schedule) -> Conflict | None:
    """The conflict that the schedule turns round; without holds, the most suspicious one."""
    kinds = {hold.op.partition("@")[0] for hold in schedule.holds}
    held = [c for c in conflicts if c.first.name.partition("@")[0] in kinds]
    chosen = held or list(conflicts)
    return chosen[0] if chosen else None


def explain_pair(trace: Trace, first: str, second: str) -> Ordered | Racing:
    """How two named operations or host actions are ordered. Raises ExplainError."""
    graph = EdgeGraph(trace)
    a, b = graph.find(first), graph.find(second)
    path = graph.path(a, b) or graph.path(b, a)
    if path is not None:
        return path
    for conflict in find_conflicts(trace):
        if {conflict.first.name, conflict.second.name} == {graph.name(a), graph.name(b)}:
            return explain_conflict(trace, conflict)
    raise ExplainError(
        f"{graph.name(a)} and {graph.name(b)} are not ordered, but share no memory: no race either"
    )


def explain_conflict(trace: Trace, conflict: Conflict) -> Racing:
    """What is missing between two accesses in conflict."""
    lane = trace.lanes[conflict.second.lane]
    rows = tuple(i for i in range(conflict.rows.bit_length()) if conflict.rows >> i & 1)
    late = late_wait(trace, conflict.first, conflict.second)
    return Racing(
        first=conflict.first.name,
        second=conflict.second.name,
        buffer=conflict.buffer,
        rows=rows,
        late_wait=None if late is None else f"edge {late.edge}, waited for in step {late.step}",
        would_protect=(
            PathStep(
                by=f"an event recorded on {trace.lanes[conflict.first.lane]} behind it",
                to=f"a wait of {lane} for that event, before {conflict.second.name}",
            ),
            PathStep(
                by="host order" if lane == "host" else "stream order", to=conflict.second.name
            ),
        ),
    )


def one_hold_difference(
    checker: Checker, schedule: Schedule, fault: Fault | None
) -> Difference | None:
    """The shortest pair of schedules, one passing and one failing, that differ in one hold."""
    for index in range(len(schedule.holds)):
        rest = Schedule(holds=schedule.holds[:index] + schedule.holds[index + 1 :])
        if _passes(checker, rest, fault):
            return Difference(
                passing=rest.texts(),
                failing=schedule.texts(),
                hold=schedule.holds[index].text(),
            )
    run = checker.execute(schedule=EAGER, fault=fault)
    for hold in reversals(find_conflicts(run.trace)):
        more = Schedule(holds=(*schedule.holds, hold))
        if _passes(checker, more, fault):
            return Difference(passing=more.texts(), failing=schedule.texts(), hold=hold.text())
    if _passes(checker, LATE, fault):
        return Difference(passing=LATE.texts(), failing=schedule.texts(), hold=LATE.holds[0].text())
    return None


def _findings(checker: Checker, schedule: Schedule, fault: Fault | None) -> tuple[Finding, ...]:
    return checker.run(schedule=schedule, fault=fault).findings


def _passes(checker: Checker, schedule: Schedule, fault: Fault | None) -> bool:
    findings = _findings(checker, schedule, fault)
    return not any(finding.kind is not FindingKind.CONFLICT for finding in findings)
