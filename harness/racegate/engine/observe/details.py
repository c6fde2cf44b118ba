"""What the probe notes beside the compared values, for the invariants oracle: the engine's own
counters and tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from racegate.engine.scheduling.scheduler import Scheduler
from racegate.engine.state.buffers import Inputs
from racegate.engine.state.plan import StepPlan, region
from racegate.engine.state.tracked import Status, Tracked
from racegate.engine.state.view import PrevStep, StepView


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
        return self._promised.get((tracked.name, tracked.incarnation), 0)

    def scheduled(self, plan: StepPlan) -> None:
        self._count(plan, sign=1)

    def processed(self, plan: StepPlan) -> None:
        self._count(plan, sign=-1)

    def _count(self, plan: StepPlan, *, sign: int) -> None:
        for entry in plan.entries:
            if not entry.is_discarded:
                key = (entry.request, entry.incarnation)
                self._promised[key] = self._promised.get(key, 0) + sign * (1 + entry.drafts)


def scheduled_detail(
    plan: StepPlan, scheduler: Scheduler, promises: Promises, *, in_flight: int
) -> dict[str, Any]:
    return {
        "frames_in_flight": in_flight,
        "is_decode": {entry.request: entry.is_decode for entry in plan.entries},
        "computed": {entry.request: entry.computed for entry in plan.entries},
        **_scheduler_detail(scheduler, promises),
    }


def processed_detail(plan: StepPlan, scheduler: Scheduler, promises: Promises) -> dict[str, Any]:
    return _scheduler_detail(scheduler, promises)


def _scheduler_detail(scheduler: Scheduler, promises: Promises) -> dict[str, Any]:
    live = (Status.RUNNING, Status.WAITING)
    return {
        "counters": {
            name: _counters(tracked, promises.of(tracked))
            for name, tracked in scheduler.requests.items()
            if tracked.status in live
        },
        "blocks_pool": scheduler.tables.attention.view(),
        "state_blocks_pool": scheduler.tables.state.view(),
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
    view: StepView,
    row_of: Mapping[str, int],
    inputs: Inputs,
    prev: PrevStep | None,
    *,
    threshold: int,
) -> dict[str, Any]:
    entries = view.entries
    return {
        "row_of": dict(row_of),
        "block_table": inputs.block_table.cpu.peek(),
        "state_table": inputs.state_table.cpu.peek(),
        "blocks": {entry.request: entry.blocks for entry in entries},
        "state_blocks": {entry.request: entry.state_blocks for entry in entries},
        "prev_positions": view.prev_positions,
        "prev_rows": () if prev is None else prev.requests,
        "prev_discarded": () if prev is None else prev.discarded,
        "regions": [region(entry, threshold=threshold) for entry in entries],
        "chunk_end": [
            state.computed + entry.tokens for entry, state in zip(entries, view.states, strict=True)
        ],
        "prefill_len": [entry.prefill_len for entry in entries],
    }
