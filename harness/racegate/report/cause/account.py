"""Account: of everything that the oracles said of a run, one cause, and what follows from it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from racegate.check.judge import Judged
from racegate.history.edge import Edge
from racegate.history.finding import Finding, FindingKind, Verdict
from racegate.history.schedule import parse_schedule
from racegate.history.trace import Conflict, Trace, Waited, rows_of
from racegate.oracles.missing_edge import late_wait
from racegate.report.cause.impact import impact_of
from racegate.report.cause.pair import (
    Pair,
    Relation,
    TraceStep,
    pair_of_conflict,
    pair_of_finding,
)
from racegate.report.cause.row_assignment import RowAssignment, assignment_of, noun_of

PLACES_MAX = 6
NO_IMPACT = (
    "Nothing: every order of the pair was run and comes to the same right outcome. An order is "
    "missing, and it does not matter in this scenario."
)


class PairSide(msgspec.Struct, frozen=True, kw_only=True):
    """One operation of the pair. verb: what it does with the rows; lane: by name"""

    name: str
    lane: str
    verb: str
    step: int


class RowPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A row that both touch. noun: what a row of the buffer is; before, after: the request that has
    it in the step of the first and of the second, None if nobody has
    """

    row: int
    noun: str
    before: str | None
    after: str | None
    text: str


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """One cause with its consequences.

    title: what it is, in a few words; impact: what would happen to a user
    cause: the finding that the others follow from; consequences: those
    first, second: the pair; None where the run does not say it, as of a deadlock
    edge: the one that is meant for the pair; to_add: the edge to add, in words
    more_rows: rows of the pair that are not listed
    """

    title: str
    impact: str
    cause: Finding
    consequences: tuple[Finding, ...]
    relation: Relation
    buffer: str | None
    first: PairSide | None
    second: PairSide | None
    places: tuple[RowPlace, ...]
    more_rows: int
    edge: Edge | None
    to_add: str

    @property
    def replay(self) -> str:
        """The command that shows it again."""
        return self.cause.replay


class Accounted(msgspec.Struct, frozen=True, kw_only=True):
    """An account with what it was read from."""

    account: Account
    pair: Pair | None
    assignment: RowAssignment


def accounted(judged: Judged) -> Accounted | None:
    """What a judged run suffers from; None if nothing was found."""
    findings = judged.result.findings
    if not findings:
        return None
    run, assignment = judged.run, assignment_of(judged.run.observations)
    conflict = deciding_conflict(judged, assignment)
    if conflict is not None:
        pair: Pair | None = pair_of_conflict(conflict)
        cause = _finding_of(conflict, findings)
    else:
        pairs = ((pair_of_finding(run, finding), finding) for finding in findings)
        found = next(((p, f) for p, f in pairs if p is not None), (None, findings[0]))
        pair, cause = found
    edge = next((e for e in run.edges if e.name == cause.edge), None) if conflict else None
    shown = rows_of(pair.rows) if pair else []
    is_benign = judged.result.verdict is Verdict.BENIGN
    account = Account(
        title=_title(cause, pair),
        impact=NO_IMPACT if is_benign else impact_of(findings, pair, edge),
        cause=cause,
        consequences=tuple(finding for finding in findings if finding is not cause),
        relation=pair.relation if pair else Relation.ORDERED,
        buffer=pair.buffer if pair else cause.buffer,
        first=None if pair is None else _side(run.trace, pair, pair.first),
        second=None if pair is None else _side(run.trace, pair, pair.second),
        places=tuple(_place(pair, row, assignment) for row in shown[:PLACES_MAX]) if pair else (),
        more_rows=max(0, len(shown) - PLACES_MAX),
        edge=edge,
        to_add=_to_add(run.trace, pair, edge, cause),
    )
    return Accounted(account=account, pair=pair, assignment=assignment)


def deciding_conflict(judged: Judged, assignment: RowAssignment) -> Conflict | None:
    """The conflict that the schedule turns round: of the very operation that is held, or of one of
    its kind. Without such, the first.
    """
    held = {hold.op.rpartition("/")[2] for hold in parse_schedule(judged.result.schedule).holds}
    names = {assignment.named(op) for op in held}
    kinds = {op.partition("@")[0] for op in held}
    conflicts = judged.conflicts
    exact = [c for c in conflicts if c.first.name in names]
    akin = [c for c in conflicts if c.first.name.partition("@")[0] in kinds]
    return next(iter((*exact, *akin, *conflicts)), None)


def _finding_of(conflict: Conflict, findings: Sequence[Finding]) -> Finding:
    """The finding that a conflict is part of: the same operations, whatever their step."""

    def kind_of(name: str | None) -> str:
        return (name or "").partition("@")[0]

    wanted = (conflict.buffer, kind_of(conflict.first.name), kind_of(conflict.second.name))
    mine = (f for f in findings if (f.buffer, kind_of(f.op), kind_of(f.other)) == wanted)
    return next(mine, findings[0])


def _title(cause: Finding, pair: Pair | None) -> str:
    if cause.kind in (FindingKind.DEADLOCK, FindingKind.CRASH):
        return "The engine stops"
    if cause.kind is FindingKind.MISMATCH:
        return "Ranks that issue different collectives"
    if cause.kind is FindingKind.FOOTPRINT:
        return f"An undeclared write to {cause.buffer}"
    if pair is None:
        return f"A defect of logic: {cause.field or cause.kind}"
    if pair.relation is Relation.UNORDERED:
        return f"Race on {pair.buffer}"
    return f"A wrong value in {pair.buffer}, under every timing"


def _side(trace: Trace, pair: Pair, event: TraceStep) -> PairSide:
    return PairSide(
        name=event.name,
        lane=trace.lanes[event.lane],
        verb=pair.verb_of(event),
        step=event.step,
    )


def _place(pair: Pair, row: int, assignment: RowAssignment) -> RowPlace:
    noun = noun_of(pair.buffer)
    then, now = pair.first.step, pair.second.step
    before = assignment.request_at(pair.buffer, row, then)
    after = assignment.request_at(pair.buffer, row, now)
    text = f"{noun} {row}: "
    if before is None and after is None:
        text += "of no one request" if noun == "entry" else "nobody's"
    elif then == now or before == after:
        text += f"request {after or before}"
    else:
        text += f"{_whose(before)} in step {then}, {_whose(after)} in step {now}"
        text += _whereto(before, assignment, now) if noun == "row" else ""
    return RowPlace(row=row, noun=noun, before=before, after=after, text=text)


def _whose(request: str | None) -> str:
    return "nobody" if request is None else f"request {request}"


def _whereto(request: str | None, assignment: RowAssignment, step: int) -> str:
    rows = assignment.rows_in(step)
    if request is None:
        return ""
    return f" ({request} moved to row {rows.index(request)})" if request in rows else ""


def _to_add(trace: Trace, pair: Pair | None, edge: Edge | None, cause: Finding) -> str:
    """What would put the pair in order, and what is there instead."""
    if cause.kind is FindingKind.MISMATCH:
        return "None: let all ranks decide by what all of them know."
    if pair is None:
        return "None: it goes wrong under every timing."
    first, second = pair.first, pair.second
    if pair.relation is Relation.ORDERED:
        return (
            f"None is missing: {first.name} comes before {second.name} under every timing, and "
            "the value is wrong all the same."
        )
    lanes = trace.lanes[first.lane], trace.lanes[second.lane]
    place = (
        f"an event recorded on {lanes[0]} behind {first.name}, and a wait of {lanes[1]} for it "
        f"before {second.name}"
    )
    if edge is None:
        return f"None is declared for this pair: put in {place}."
    return f"{edge.name}, {_now(trace, pair, edge)}. Put in {place}."


def _now(trace: Trace, pair: Pair, edge: Edge) -> str:
    """Where an edge stands in this run, in which it does not hold."""
    waits = [e for e in trace.events if isinstance(e, Waited) and e.edge == edge.name]
    if all(wait.is_dropped for wait in waits):
        return "which is missing" if not waits else "whose wait is taken out"
    late = late_wait(trace, pair.first, pair.second)
    if late is None:
        return "which covers another place"
    other = "" if late.edge == edge.name else f" ({late.edge} covers it)"
    return f"which comes too late: the wait stands behind {pair.second.name}{other}"
