"""Explain: why two operations race, or by which edges they do not; and which one hold makes the
difference.

A program's edges are host order, issue, stream order, records and waits. A wrong theory of a race
is refuted with the path that orders the pair, not ignored.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from difflib import get_close_matches

import msgspec

from racegate.check import Checker
from racegate.explore.ladder import reversals
from racegate.faults.catalogue import Fault
from racegate.oracles.ordering import Conflict, find_conflicts
from racegate.schedule import EAGER, LATE, Schedule
from racegate.trace import HOST, HostAccess, OpRecord, Recorded, Trace, Waited
from racegate.verdict import Finding, FindingKind


class ExplainError(Exception):
    """A pair that cannot be explained: says why."""


class PathStep(msgspec.Struct, frozen=True, kw_only=True):
    """One edge of a path and where it leads."""

    by: str
    to: str


class Ordered(msgspec.Struct, frozen=True, kw_only=True):
    """The pair is ordered: the shortest path of edges."""

    first: str
    second: str
    path: tuple[PathStep, ...]


class Racing(msgspec.Struct, frozen=True, kw_only=True):
    """The pair is not ordered. late_wait: the wait that would do, but stands too late."""

    first: str
    second: str
    buffer: str
    rows: tuple[int, ...]
    late_wait: str | None
    would_protect: tuple[PathStep, ...]


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Two schedules that differ in one hold, one passing and one failing."""

    passing: tuple[str, ...]
    failing: tuple[str, ...]
    hold: str


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a failure happens. race: the unordered pair behind it, None for a defect of logic."""

    race: Racing | None
    message: str
    difference: Difference | None


def explain_failure(checker: Checker, schedule: Schedule, fault: Fault | None) -> Explanation:
    """The race behind a failing schedule, and the one hold that decides. Raises ExplainError."""
    run = checker.execute(schedule=schedule, fault=fault)
    result = checker.judge(run, schedule=schedule, fault=fault)
    wrong = [f for f in result.findings if f.kind is not FindingKind.CONFLICT] or result.findings
    if not wrong:
        raise ExplainError("nothing goes wrong under this schedule: there is nothing to explain")
    conflict = _decisive(find_conflicts(run.trace), schedule)
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
    graph = _Graph(trace)
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
    return Racing(
        first=conflict.first.name,
        second=conflict.second.name,
        buffer=conflict.buffer,
        rows=rows,
        late_wait=_late_wait(trace, conflict),
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


def _late_wait(trace: Trace, conflict: Conflict) -> str | None:
    """The first wait of the second's lane that covers the first, if it only stands too late."""
    covering = {
        (event.event, event.version)
        for event in trace.events
        if isinstance(event, Recorded) and event.clock[conflict.first.lane] >= conflict.first.seq
    }
    is_behind = False
    for event in trace.events:
        if event is conflict.second:
            is_behind = True
        if (
            is_behind
            and isinstance(event, Waited)
            and event.lane == conflict.second.lane
            and not event.is_dropped
            and (event.event, event.version) in covering
        ):
            return f"edge {event.edge}, waited for in step {event.step}"
    return None


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


class _Graph:
    """The events of a trace and the program edges between them."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._edges: dict[int, list[tuple[int, str]]] = {}
        self._build()

    def _build(self) -> None:
        last: dict[int, int] = {}
        records: dict[tuple[str, int], int] = {}
        for place, event in enumerate(self._trace.events):
            if isinstance(event, HostAccess):
                self._follow(last, HOST, place, "host order")
            elif isinstance(event, OpRecord):
                self._add(last.get(HOST), place, "issue by the host")
                self._follow(last, event.lane, place, self._order_of(event.lane))
            elif isinstance(event, Recorded):
                self._add(last.get(event.lane), place, f"record of {event.event}")
                self._add(last.get(HOST), place, "issue by the host")
                records[event.event, event.version] = place
            elif isinstance(event, Waited) and not event.is_dropped:
                source = records.get((event.event, event.version))
                self._add(source, place, f"wait for edge {event.edge}")
                self._follow(last, event.lane, place, self._order_of(event.lane))

    def _order_of(self, lane: int) -> str:
        return "host order" if lane == HOST else f"stream order on {self._trace.lanes[lane]}"

    def _follow(self, last: dict[int, int], lane: int, place: int, by: str) -> None:
        self._add(last.get(lane), place, by)
        last[lane] = place

    def _add(self, source: int | None, target: int, by: str) -> None:
        if source is not None:
            self._edges.setdefault(source, []).append((target, by))

    def find(self, name: str) -> int:
        """The event of that name: an operation, or the first access of a host action."""
        for place, event in enumerate(self._trace.events):
            if isinstance(event, OpRecord | HostAccess) and event.name == name:
                return place
        known = {e.name for e in self._trace.events if isinstance(e, OpRecord | HostAccess)}
        near = get_close_matches(name, sorted(known), n=6, cutoff=0.5)
        hint = f"; near it: {', '.join(near)}" if near else ""
        raise ExplainError(f"no operation or host action {name!r} in this run{hint}")

    def name(self, place: int) -> str:
        event = self._trace.events[place]
        match event:
            case OpRecord() | HostAccess():
                return event.name
            case Recorded():
                return f"record of {event.event} on {self._trace.lanes[event.lane]}"
            case Waited():
                return f"{self._trace.lanes[event.lane]} has waited for {event.edge}"
            case _:
                return type(event).__name__

    def path(self, first: int, second: int) -> Ordered | None:
        """The shortest path of edges from one event to another."""
        came: dict[int, tuple[int, str]] = {}
        queue = deque([first])
        while queue:
            place = queue.popleft()
            if place == second:
                return Ordered(
                    first=self.name(first),
                    second=self.name(second),
                    path=self._walk(came, first, second),
                )
            for target, by in self._edges.get(place, ()):
                if target not in came and target != first:
                    came[target] = (place, by)
                    queue.append(target)
        return None

    def _walk(
        self, came: dict[int, tuple[int, str]], first: int, second: int
    ) -> tuple[PathStep, ...]:
        """The path found, a run of one stream's operations as one step."""
        backwards: list[tuple[str, int, int]] = []  # (by, place, edges)
        place = second
        while place != first:
            source, by = came[place]
            if backwards and backwards[-1][0] == by and by.startswith("stream order"):
                backwards[-1] = (by, backwards[-1][1], backwards[-1][2] + 1)
            else:
                backwards.append((by, place, 1))
            place = source
        return tuple(
            PathStep(by=by if count == 1 else f"{by}, {count} on", to=self.name(place))
            for by, place, count in reversed(backwards)
        )
