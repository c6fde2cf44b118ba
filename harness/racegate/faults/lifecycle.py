"""Faults of requests that leave with frames in flight (docs/faults.md#requests-that-leave)."""

from __future__ import annotations

from racegate.engine.scheduling.parts import SchedulingParts
from racegate.engine.state.plan import PlanEntry
from racegate.engine.state.tracked import Tracked
from racegate.faults.fault import Fault, FaultKind, the_parts


def drain(tracked: Tracked, entry: PlanEntry, tokens: list[int]) -> None:
    """The late frame is settled against the counters of the new incarnation (vllm#48245)."""
    tracked.stale -= 1
    if not entry.is_discarded:
        tracked.computed -= entry.drafts + 1 - len(tokens)
        tracked.placeholders -= entry.drafts + 1
    tracked.deliver(tokens)


def discard(tracked: Tracked, entry: PlanEntry, tokens: list[int]) -> None:
    """The late frame is thrown away with its tokens (vllm#47900)."""
    tracked.stale -= 1


FAULTS = (
    Fault(
        name="late-frame-misapplied",
        number=34,
        kind=FaultKind.LOGIC,
        origin="vllm#48245, sglang#23456",
        summary="a frame of a preempted request is settled against its reset counters",
        expect="processed.placeholders",
        scenarios=("preempt-and-resume", "preempt-for-want-of-blocks"),
        parts=the_parts(scheduling=SchedulingParts(take_late=drain)),
    ),
    Fault(
        name="late-frame-misapplied:discarded",
        number=34,
        kind=FaultKind.LOGIC,
        origin="vllm#47900, #42117",
        summary="a frame of a preempted request is thrown away with its tokens",
        expect="processed.delivered",
        scenarios=("preempt-and-resume", "preempt-for-want-of-blocks"),
        parts=the_parts(scheduling=SchedulingParts(take_late=discard)),
    ),
)
