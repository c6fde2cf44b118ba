"""Where the first of a conflict may land around the second, one point after another."""

from __future__ import annotations

from racegate.check.repro import sweep
from racegate.check.repro.sweep import BEFORE_MAX, BEHIND_MAX, is_wrong
from racegate.faults.catalogue import find_fault
from racegate.history.schedule import parse_schedule
from racegate.history.trace import Conflict, HostAccess, OpRecord, Trace
from racegate.oracles.ordering import find_conflicts
from support import checker

FAULT = find_fault("accepted-copy-after-row-move")


def traced() -> tuple[Trace, Conflict]:
    trace = checker("finish-and-condense").execute(fault=FAULT).trace
    return trace, find_conflicts(trace)[0]


def test_points_are_those_around_the_second_on_other_lanes_than_the_first() -> None:
    trace, conflict = traced()
    events = [event for event in trace.events if isinstance(event, OpRecord | HostAccess)]
    behind = events[events.index(conflict.first) + 1 :]
    others = list(dict.fromkeys(one.name for one in behind if one.lane != conflict.first.lane))
    points = sweep._points(trace, conflict)
    at = others.index(conflict.second.name)
    assert points == tuple(others[max(0, at - BEFORE_MAX) : at + 1 + BEHIND_MAX])
    assert points.index(conflict.second.name) == min(at, BEFORE_MAX)
    near = Trace(lanes=trace.lanes, events=(conflict.first, conflict.second))
    assert sweep._points(near, conflict) == (conflict.second.name,)
    at_once = [one for one in behind if one.name in others[at:]]
    soon = Trace(lanes=trace.lanes, events=(conflict.first, *at_once))
    assert sweep._points(soon, conflict) == tuple(others[at : at + 1 + BEHIND_MAX])


def test_a_sweep_begins_without_the_hold_and_has_the_judged_run_once() -> None:
    subject = checker("finish-and-condense")
    _, conflict = traced()
    schedule = parse_schedule(FAULT.holds["finish-and-condense"])
    judged = subject.run_judged(schedule=schedule, fault=FAULT)
    runs = sweep.sweep(subject, judged, conflict, FAULT)
    assert runs[0].result.schedule == ()
    assert sum(run is judged for run in runs) == 1
    assert any(is_wrong(run) for run in runs)
    assert all(outcome.realised for run in runs for outcome in run.run.trace.holds)


def test_a_sweep_goes_on_behind_the_judged_run() -> None:
    subject = checker("finish-and-condense")
    trace, conflict = traced()
    first = sweep._points(trace, conflict)[0]
    schedule = parse_schedule([f"{conflict.first.name} until {first}"])
    judged = subject.run_judged(schedule=schedule, fault=FAULT)
    runs = sweep.sweep(subject, judged, find_conflicts(judged.run.trace)[0], FAULT)
    until = {hold.until for run in runs for hold in parse_schedule(run.result.schedule).holds}
    assert until > {first}


def test_a_judged_run_that_holds_nothing_is_not_one_of_a_sweep() -> None:
    subject = checker("finish-and-condense")
    judged = subject.run_judged(fault=FAULT)
    runs = sweep.sweep(subject, judged, find_conflicts(judged.run.trace)[0], FAULT)
    assert len(runs) > 1
    assert not any(run is judged for run in runs)
