"""Sweep: one hold moved from point to point, and what the run comes to at each. What a slider over
schedules shows: all of them differ in this one hold.
"""

from __future__ import annotations

from collections.abc import Iterator

from racegate.check.checker import Checker
from racegate.check.judge import Judged
from racegate.explore.ladder import reversals
from racegate.faults.fault import Fault
from racegate.history.finding import FindingKind
from racegate.history.schedule import Hold, Schedule, parse_schedule
from racegate.history.trace import Conflict, HostAccess, OpRecord, Trace

BEFORE_MAX = 4  # points before the second of the pair
BEHIND_MAX = 2


def sweep(
    checker: Checker, judged: Judged, conflict: Conflict, fault: Fault | None
) -> tuple[Judged, ...]:
    """The run without the hold that keeps the first of a conflict, then with it until one point
    after another; the judged run is one of them. Holds that are not realised are left out.
    """
    schedule = parse_schedule(judged.result.schedule)
    hold, rest = _deciding(schedule, conflict)
    runs = [checker.run_judged(schedule=Schedule(holds=rest), fault=fault)]
    has_own = False
    for until in _points(judged.run.trace, conflict):
        if hold.until == until or until == conflict.second.name:
            has_own = has_own or hold in schedule.holds
            own = judged if hold in schedule.holds else None
            runs.append(own or checker.run_judged(schedule=_with(rest, hold), fault=fault))
            continue
        moved = _with(rest, Hold(op=hold.op, until=until))
        found = checker.run_judged(schedule=moved, fault=fault)
        if all(outcome.realised for outcome in found.run.trace.holds):
            runs.append(found)
    if hold in schedule.holds and not has_own:
        runs.append(judged)
    return tuple(runs)


def is_wrong(judged: Judged) -> bool:
    """Whether a run shows more than that a pair is unordered."""
    return any(f.kind is not FindingKind.CONFLICT for f in judged.result.findings)


def _deciding(schedule: Schedule, conflict: Conflict) -> tuple[Hold, tuple[Hold, ...]]:
    """The hold on the first of the conflict, and the others. Without one, the hold that turns it
    round.
    """
    kind = conflict.first.name.partition("@")[0]
    for index, hold in enumerate(schedule.holds):
        if hold.op.rpartition("/")[2].partition("@")[0] == kind:
            return hold, (*schedule.holds[:index], *schedule.holds[index + 1 :])
    if schedule.holds:
        return schedule.holds[0], schedule.holds[1:]
    return next(iter(reversals([conflict]))), ()


def _with(rest: tuple[Hold, ...], hold: Hold) -> Schedule:
    return Schedule(holds=(*rest, hold))


def _points(trace: Trace, conflict: Conflict) -> tuple[str, ...]:
    """Names of what comes around the second of a conflict, on other lanes than the first's."""
    names = list(dict.fromkeys(_behind(trace, conflict)))
    if conflict.second.name not in names:
        return (conflict.second.name,)
    at = names.index(conflict.second.name)
    return tuple(names[max(0, at - BEFORE_MAX) : at + 1 + BEHIND_MAX])


def _behind(trace: Trace, conflict: Conflict) -> Iterator[str]:
    is_behind = False
    for event in trace.events:
        if event is conflict.first:
            is_behind = True
            continue
        if not is_behind or not isinstance(event, OpRecord | HostAccess):
            continue
        if event.lane != conflict.first.lane:
            yield event.name
