"""What the probe notes beside the compared values, for the invariants oracle: the engine's own
counters and tables.
"""

from __future__ import annotations

import msgspec
import numpy as np

from racegate.engine.observe.probe import Preparation
from racegate.engine.scheduling.scheduler import Scheduler
from racegate.engine.state.plan import PlanEntry, StepPlan, region
from racegate.engine.state.tracked import Status, Tracked
from racegate.engine.state.view import StepView

Table = tuple[int, ...]


class CountersView(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A request's counters at one moment. promised: counted by the observer, from the plans."""

    is_running: bool
    is_waiting: bool
    tokens: int
    delivered: int
    max_tokens: int
    prefill_len: int
    computed: int
    settled: int
    placeholders: int
    drafts_next: int
    in_flight: int
    promised: int
    blocks: tuple[int, ...]
    state_blocks: tuple[int, ...]


class Promises:
    """Output tokens promised by the sampling frames in flight, by (request, incarnation), from the
    plans alone.
    """

    def __init__(self) -> None:
        self._promised: dict[tuple[str, int], int] = {}

    def of(self, tracked: Tracked) -> int:
        """Those of a request's present incarnation."""
        return self._promised.get((tracked.name, tracked.incarnation), 0)

    def scheduled(self, plan: StepPlan) -> None:
        """A frame is in flight."""
        self._count(plan, sign=1)

    def processed(self, plan: StepPlan) -> None:
        """It has arrived."""
        self._count(plan, sign=-1)

    def _count(self, plan: StepPlan, *, sign: int) -> None:
        for entry in plan.entries:
            if not entry.is_discarded:
                key = (entry.request, entry.incarnation)
                self._promised[key] = self._promised.get(key, 0) + sign * (1 + entry.drafts)


def scheduled_detail(
    plan: StepPlan, scheduler: Scheduler, promises: Promises, *, in_flight: int
) -> dict[str, object]:
    """The plan's view of its requests, and the scheduler's counters and pools."""
    return {
        "frames_in_flight": in_flight,
        "is_decode": {entry.request: entry.is_decode for entry in plan.entries},
        "computed": {entry.request: entry.computed for entry in plan.entries},
        "incarnation": {entry.request: entry.incarnation for entry in plan.entries},
        "taking": {entry.request: _taken(entry) for entry in plan.taking},
        **_scheduler_detail(scheduler, promises),
    }


def _taken(entry: PlanEntry) -> tuple[tuple[Table, Table], tuple[Table, Table], int]:
    """Tables and new blocks, of attention and of states, and tokens that are loaded into them."""
    fresh = (entry.fresh_blocks, entry.fresh_state_blocks)
    return (entry.blocks, entry.state_blocks), fresh, entry.loaded


def processed_detail(plan: StepPlan, scheduler: Scheduler, promises: Promises) -> dict[str, object]:
    """The scheduler's counters and pools, and whose frame it was by now."""
    names = [entry.request for entry in plan.entries]
    return {
        "incarnation": {name: scheduler.requests[name].incarnation for name in names},
        **_scheduler_detail(scheduler, promises),
    }


def _scheduler_detail(scheduler: Scheduler, promises: Promises) -> dict[str, object]:
    counters = {
        tracked.name: _counters(tracked, promises.of(tracked)) for tracked in scheduler.live
    }
    held = set().union(*(view.blocks for view in counters.values()))
    state_held = set().union(*(view.state_blocks for view in counters.values()))
    return {
        "counters": counters,
        "blocks_pool": scheduler.tables.attention.view(held),
        "state_blocks_pool": scheduler.tables.state.view(state_held),
    }


def _counters(tracked: Tracked, promised: int) -> CountersView:
    return CountersView(
        is_running=tracked.status is Status.RUNNING,
        is_waiting=tracked.status is Status.WAITING,
        tokens=len(tracked.tokens),
        delivered=tracked.delivered,
        max_tokens=tracked.request.max_tokens,
        prefill_len=tracked.prefill_len,
        computed=tracked.computed,
        settled=tracked.settled,
        placeholders=tracked.placeholders,
        drafts_next=tracked.drafts_next,
        in_flight=tracked.in_flight,
        promised=promised,
        blocks=tuple(tracked.blocks),
        state_blocks=tuple(tracked.state_blocks),
    )


def prepared_detail(
    view: StepView, preparation: Preparation, *, threshold: int
) -> dict[str, object]:
    """Rows, tables and what the step looked back at. threshold: see region."""
    entries, prev = view.entries, preparation.prev
    rows = len(view.rows)
    return {
        "row_of": dict(preparation.row_of),
        **{name: _up_to_last(table, rows) for name, table in preparation.tables().items()},
        "slots": preparation.slots,
        "blocks": {entry.request: entry.blocks for entry in entries},
        "state_blocks": {entry.request: entry.state_blocks for entry in entries},
        "prev_positions": view.prev_positions,
        "prev_rows": prev.requests,
        "prev_discarded": prev.discarded,
        "regions": [region(entry, threshold=threshold) for entry in entries],
        "chunk_end": [
            state.computed + entry.tokens for entry, state in zip(entries, view.states, strict=True)
        ],
        "prefill_len": [entry.prefill_len for entry in entries],
    }


def _up_to_last(
    table: np.ndarray,  # [R, C] int32
    rows: int,
) -> np.ndarray:
    """[r, C] int32: the first `rows` rows, and those up to the last that names a block; one more,
    if there is one, stands for the others, which name none.
    """
    named = np.flatnonzero(table.any(axis=1))
    kept: np.ndarray = table[: 1 + max([rows, *(named[-1:] + 1)])].copy()
    return kept
