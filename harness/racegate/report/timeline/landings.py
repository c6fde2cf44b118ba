"""Where operations land: the place in the order of issue at which each was complete, by the holds
of a run.

Under no hold an operation completes when it is issued. A held one waits for its point, and so does
what stands behind it on its stream or behind an event recorded there; a wait of the host that needs
it ends that.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

import msgspec

from racegate.history.run import Run
from racegate.history.schedule import FORCED, Hold, parse_hold
from racegate.history.trace import HOST, HostAccess, OpRecord, Recorded, Trace, Waited
from racegate.report.cause.row_assignment import RowAssignment


class DrawnLanding(msgspec.Struct, frozen=True, kw_only=True):
    """Of one operation. at: the place; until: the point of the hold that keeps it, if one does"""

    at: int
    until: str


def landings_of(
    run: Run, assignment: RowAssignment, known: Mapping[int, int | None]
) -> dict[int, DrawnLanding]:
    """Place of issue -> where it lands. known: place of issue -> where the host knows of it"""
    trace = run.trace
    holds = [
        (hold, _release(trace, hold, assignment))
        for hold in (parse_hold(outcome.hold) for outcome in trace.holds if outcome.realised)
    ]
    free: dict[int, int] = {}
    recorded: dict[tuple[str, int], int] = {}
    landings: dict[int, DrawnLanding] = {}
    for place, event in enumerate(trace.events):
        if isinstance(event, OpRecord):
            landing = _landing(trace, place, event, free.get(event.lane, place), holds, assignment)
            needed = known[place]
            if needed is not None and landing.at > needed:
                landing = msgspec.structs.replace(landing, at=needed)
            landings[place] = landing
            free[event.lane] = landing.at
        elif isinstance(event, Recorded):
            recorded[event.event, event.version] = free.get(event.lane, place)
        elif isinstance(event, Waited) and event.lane != HOST and not event.is_dropped:
            behind = recorded.get((event.event, event.version), place)
            free[event.lane] = max(free.get(event.lane, place), behind)
    return landings


def _landing(
    trace: Trace,
    place: int,
    event: OpRecord,
    free: int,
    holds: list[tuple[Hold, int]],
    assignment: RowAssignment,
) -> DrawnLanding:
    """free: where what stands before it on its stream has landed"""
    full = f"{trace.lanes[event.lane]}/{event.name}"
    mine = [(hold, release) for hold, release in holds if _names(hold, full, assignment)]
    at = max(place, free, *(release for _, release in mine)) if mine else max(place, free)
    return DrawnLanding(at=at, until=assignment.named(mine[0][0].until) if mine else "")


def _names(hold: Hold, full: str, assignment: RowAssignment) -> bool:
    op = assignment.named(hold.op)
    return fnmatchcase(full, op if "/" in op else f"*/{op}")


def _release(trace: Trace, hold: Hold, assignment: RowAssignment) -> int:
    """The place of a hold's point: where that operation is issued, or the host has done it."""
    end = len(trace.events)
    if hold.until == FORCED:
        return end
    point = assignment.named(hold.until).partition("#")[0]
    places = [
        place
        for place, event in enumerate(trace.events)
        if isinstance(event, OpRecord | HostAccess) and fnmatchcase(event.name, point)
    ]
    if not places:
        return end
    first = trace.events[places[0]]
    return places[-1] if isinstance(first, HostAccess) else places[0]
