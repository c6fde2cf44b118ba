"""The truth table of the accepted-count path: which design survives which landing of the copy.

docs/mechanism.md#landings derives it; here every cell is a run of the real engine under a hold. The
step that is looked at moves two groups of rows; rows P and Q had no drafts in the step before,
because without prefix caching these are the rows whose count the historical designs take from the
host.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import msgspec

from racegate.check.checker import Checker
from racegate.faults.catalogue import find_fault
from racegate.faults.fault import Fault
from racegate.faults.halffixes import VARIANTS
from racegate.history.finding import Finding, FindingKind
from racegate.history.outcome import RunResult
from racegate.history.schedule import EAGER, Hold, Schedule
from racegate.history.trace import HostAccess, OpRecord
from racegate.scenario.settings import CacheMode, EngineSpec
from racegate.scenario.spec import DraftLimit, Event, OwnScenario, Request, Rotate

# The step whose rows move; the copy looked at is that of the step before.
MOVE_STEP = 4
COPY = f"d2h:accepted_counts@{MOVE_STEP - 1}"
LIVE_ROWS = "counts/live-rows"


class Motion(StrEnum):
    """How the rows move in one step."""

    CONDENSE = "condense"
    TWO_CYCLE = "two-cycle"
    THREE_CYCLE = "three-cycle"


class CountLanding(StrEnum):
    """When the counts of the step before arrive in host memory."""

    EARLY = "early"
    LATE = "late"
    BETWEEN = "between two moves"


class Landed(StrEnum):
    """What became of the wanted landing: an edge of the design may exclude it, or it copies
    nothing.
    """

    AS_WANTED = "as wanted"
    EXCLUDED = "excluded by an edge"
    NO_COPY = "no copy"


class CellOutcome(StrEnum):
    """What the run of a cell came to. raised: an assertion or a deadlock ended it"""

    RIGHT = "right"
    WRONG = "wrong"
    RAISED = "raised"


class TruthCell(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a design under a landing, a motion and a cache mode.

    design: name of the variant; motion: how the rows move; landing: when the counts should arrive
    landed: what became of that; outcome: of the run; hold: what was held for it
    is_flagged: the ordering oracle names a conflict, whatever the values are
    request, field, expected, actual: the first wrong value, of a cell that is wrong
    """

    design: str
    cache_mode: CacheMode
    motion: Motion
    landing: CountLanding
    landed: Landed
    outcome: CellOutcome
    is_flagged: bool
    hold: str
    request: str | None = None
    field: str | None = None
    expected: int | None = None
    actual: int | None = None


def measure_table(*, on_design: Callable[[str], None]) -> tuple[TruthCell, ...]:
    """Every design under every landing of every motion in both cache modes."""
    modes = (CacheMode.NONE, CacheMode.ALIGN)
    scripts = {
        (mode, motion): Checker(motion_scenario(motion, mode))
        for mode in modes
        for motion in Motion
    }
    cells = []
    for design in VARIANTS:
        on_design(design.name)
        for (mode, motion), checker in scripts.items():
            cells += [_cell(design, mode, motion, landing, checker) for landing in CountLanding]
    return tuple(cells)


def _cell(
    design: Fault, mode: CacheMode, motion: Motion, landing: CountLanding, checker: Checker
) -> TruthCell:
    schedule = _schedule(motion, landing, checker)
    result = checker.run(schedule=schedule, fault=design)
    wrong = _first_wrong(result)
    outcome = _outcome(wrong)
    cell = TruthCell(
        design=design.name,
        cache_mode=mode,
        motion=motion,
        landing=landing,
        landed=_landed(result, checker, design),
        outcome=outcome,
        is_flagged=result.stats.conflicts > 0,
        hold="".join(schedule.texts()),
    )
    if wrong is None or outcome is CellOutcome.RAISED:
        return cell
    return msgspec.structs.replace(
        cell,
        request=wrong.request,
        field=wrong.field,
        expected=wrong.expected,
        actual=wrong.actual,
    )


def _first_wrong(result: RunResult) -> Finding | None:
    kinds = (FindingKind.DIVERGENCE, FindingKind.CRASH, FindingKind.DEADLOCK)
    return next((finding for finding in result.findings if finding.kind in kinds), None)


def _outcome(wrong: Finding | None) -> CellOutcome:
    if wrong is None:
        return CellOutcome.RIGHT
    is_raised = wrong.kind in (FindingKind.CRASH, FindingKind.DEADLOCK)
    return CellOutcome.RAISED if is_raised else CellOutcome.WRONG


def _landed(result: RunResult, checker: Checker, design: Fault) -> Landed:
    if not result.holds:
        events = checker.execute(fault=design).trace.events
        is_copied = any(isinstance(e, OpRecord) and e.name == COPY for e in events)
        return Landed.AS_WANTED if is_copied else Landed.NO_COPY
    (hold,) = result.holds
    if not hold.matched:
        return Landed.NO_COPY
    return Landed.AS_WANTED if hold.realised else Landed.EXCLUDED


def _schedule(motion: Motion, landing: CountLanding, checker: Checker) -> Schedule:
    if landing is CountLanding.EARLY:
        return EAGER
    point = _after_moves(motion) if landing is CountLanding.LATE else _after_first(motion, checker)
    return Schedule(holds=(Hold(op=COPY, until=point),))


def _after_moves(motion: Motion) -> str:
    """The host action in which the last row moves."""
    return f"host:{'condense' if motion is Motion.CONDENSE else 'rotate'}@{MOVE_STEP}"


def _after_first(motion: Motion, checker: Checker) -> str:
    """Behind the first move: an action of its own, or a place within the one with both."""
    if motion is Motion.TWO_CYCLE:
        return f"host:reorder@{MOVE_STEP}"
    action = _after_moves(motion)
    trace = checker.execute(fault=find_fault(LIVE_ROWS)).trace
    buffers = [
        event.access.buffer
        for event in trace.events
        if isinstance(event, HostAccess) and event.name == action
    ]
    counts = [i for i, buffer in enumerate(buffers) if buffer == "accepted_counts_cpu"]
    return f"{action}#{counts[1] + 1}"


def motion_scenario(motion: Motion, cache_mode: CacheMode) -> OwnScenario:
    """The script of a motion."""
    make = {
        Motion.CONDENSE: _condense,
        Motion.TWO_CYCLE: _two_cycle,
        Motion.THREE_CYCLE: _three_cycle,
    }
    requests, events = make[motion]()
    without_drafts = tuple(
        DraftLimit(step=MOVE_STEP - 1, request=request.name, drafts=0)
        for request in requests
        if request.name in "PQ"
    )
    return OwnScenario(
        name=f"halffixes-{motion}-{cache_mode}",
        title=f"{motion} in step {MOVE_STEP}",
        origin="vllm#38556, #51571",
        engine=EngineSpec(cache_mode=cache_mode),
        requests=requests,
        events=(*without_drafts, *events),
    )


Script = tuple[tuple[Request, ...], tuple[Event, ...]]


def _condense() -> Script:
    """A and B finish: Q moves into row 0, then P into row 1."""
    requests = (
        _request("A", tokens=9, accepts=(4,)),
        _request("B", tokens=9, accepts=(4,)),
        _request("P", tokens=16, accepts=(3, 2)),
        _request("Q", tokens=16, accepts=(2, 3)),
    )
    return requests, ()


def _two_cycle() -> Script:
    """E takes A's row and is swapped with Q, so that decode rows come first; then B and P change
    places.
    """
    requests = (
        _request("A", tokens=9, accepts=(4,)),
        _request("B", tokens=16, accepts=(3,)),
        _request("P", tokens=16, accepts=(3, 2)),
        _request("Q", tokens=16, accepts=(2, 3)),
        _request("E", tokens=6, accepts=(2,), arrive=MOVE_STEP),
    )
    return requests, (Rotate(step=MOVE_STEP, requests=("B", "P")),)


def _three_cycle() -> Script:
    """P takes row 0, and then B and A change places."""
    requests = (
        _request("A", tokens=16, accepts=(4,)),
        _request("P", tokens=16, accepts=(3, 2)),
        _request("B", tokens=16, accepts=(3,)),
    )
    return requests, (Rotate(step=MOVE_STEP, requests=("A", "B", "P")),)


def _request(name: str, *, tokens: int, accepts: tuple[int, ...], arrive: int = 0) -> Request:
    place = ord(name) - ord("A")
    prompt = tuple((7 * i + 3 * place + 1) % 97 for i in range(5 + place % 2))
    return Request(name=name, arrive=arrive, prompt=prompt, max_tokens=tokens, accepts=accepts)
