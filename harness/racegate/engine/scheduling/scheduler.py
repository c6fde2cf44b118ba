"""The asynchronous scheduler: plans a step before the results of the steps in flight are known.

It counts every draft in flight as accepted and repairs its counters when outputs arrive
(docs/mechanism.md#counters; policy: DEFINITION section 5). Preempted requests deliver the frames
they had in flight and resume only after them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TypeVar

from racegate.engine.scheduling.block_tables import BlockTables
from racegate.engine.scheduling.parts import SchedulingParts
from racegate.engine.state.counters import Counters
from racegate.engine.state.plan import PlanEntry, StepPlan
from racegate.engine.state.tracked import Finish, Status, Tracked
from racegate.scenario.spec import (
    Abort,
    Budget,
    DraftLimit,
    Dummy,
    Event,
    Gap,
    OwnScenario,
    Preempt,
)

EventKind = TypeVar("EventKind")


class Scheduler:
    """Plans steps, processes outputs."""

    def __init__(self, scenario: OwnScenario, counters: Counters, parts: SchedulingParts) -> None:
        self._engine = scenario.engine
        self._by_step: dict[int, list[Event]] = {}
        for event in scenario.events:
            self._by_step.setdefault(event.step, []).append(event)
        self._gaps = {
            (event.request, event.step + i)
            for event in scenario.events
            if isinstance(event, Gap)
            for i in range(event.steps)
        }
        self._counters = counters
        self._parts = parts
        self._tables = BlockTables(scenario.engine, reserved=parts.reserved)
        self.requests = {
            request.name: Tracked(request, list(request.prompt)) for request in scenario.requests
        }
        self._arrivals: dict[int, list[Tracked]] = {}
        for tracked in self.requests.values():
            self._arrivals.setdefault(tracked.request.arrive, []).append(tracked)
        self._place = {name: place for place, name in enumerate(self.requests)}
        self._unfinished = len(self.requests)
        self._running: list[Tracked] = []
        self._waiting: deque[Tracked] = deque()
        self._ended: list[str] = []
        self._preempted: list[str] = []
        self._lost: list[PlanEntry] = []
        self._settled = -1
        self.unmet_events: list[str] = []

    @property
    def tables(self) -> BlockTables:
        """Who has which blocks."""
        return self._tables

    @property
    def is_done(self) -> bool:
        """Whether every request has ended."""
        return self._unfinished == 0

    @property
    def live(self) -> list[Tracked]:
        """Requests that have arrived and not ended, in the order of the scenario."""
        return sorted((*self._running, *self._waiting), key=lambda t: self._place[t.name])

    def begin_step(self, step: int) -> None:
        """Forced preemptions and arrivals of a step."""
        self._preempted = []
        for event in self._events(step, Preempt):
            tracked = self.requests[event.request]
            if tracked.status is Status.RUNNING:
                self._preempt(tracked)
            else:
                self.unmet_events.append(f"preempt {event.request} @{step}")
        for tracked in self._arrivals.get(step, ()):
            if tracked.status is Status.PENDING:
                tracked.status = Status.WAITING
                self._waiting.append(tracked)

    def plan(self, step: int) -> StepPlan:
        """What to run in this step, and the counters advanced as if all of it succeeded."""
        forced = len(self._preempted)
        budget = self._budget(step)
        planned: dict[str, tuple[Tracked, int, int]] = {}
        for tracked in list(self._running):
            if budget <= 0:
                break
            if tracked.status is not Status.RUNNING:
                continue
            tokens = self._tokens_for_running(tracked, step, budget)
            if tokens <= 0:
                continue
            if not self._grow_running(tracked, tokens):
                break
            drafts = max(0, tokens + tracked.computed - len(tracked.tokens) - tracked.placeholders)
            planned[tracked.name] = (tracked, tokens, drafts)
            budget -= tokens
        if len(self._preempted) == forced:
            self._admit(step, budget, planned)
        entries = tuple(self._entry(step, *item) for item in planned.values())
        for tracked, tokens, drafts in planned.values():
            self._advance(tracked, step, tokens, drafts)
        ended, self._ended = tuple(self._ended), []
        lost, self._lost = tuple(self._lost), []
        return StepPlan(
            step=step,
            entries=entries,
            ended=ended,
            preempted=tuple(self._preempted),
            dummy_rows=sum(event.rows for event in self._events(step, Dummy)),
            lost=lost,
            saved=self._tables.saved,
            settled=self._settled,
        )

    def abort(self, step: int) -> None:
        """Abort events of a step, taken while frames are in flight."""
        for event in self._events(step, Abort):
            tracked = self.requests[event.request]
            if tracked.status in (Status.RUNNING, Status.WAITING):
                self._counters.add("aborts_in_flight", tracked.in_flight + tracked.stale > 0)
                self._finish(tracked, Finish.ABORT)
            else:
                self.unmet_events.append(f"abort {event.request} @{step}")

    def process(self, plan: StepPlan, sampled: Mapping[str, list[int]]) -> None:
        """Applies the output of a step: the tokens each of its requests emitted."""
        self._settled = plan.step
        for entry in plan.entries:
            tracked = self.requests[entry.request]
            if tracked.status is Status.FINISHED:
                continue
            tokens = [] if entry.is_discarded else sampled[entry.request]
            if entry.incarnation != tracked.incarnation:
                self._counters.add("stale_frames")
                self._parts.take_late(tracked, entry, tokens)
            else:
                self._settle(tracked, entry, tokens)
            if self._parts.finishes(tracked):
                self._finish(tracked, tracked.finish)
            elif entry.incarnation == tracked.incarnation:
                self._tables.publish(tracked, entry, accepted=len(tokens))

    def _settle(self, tracked: Tracked, entry: PlanEntry, tokens: list[int]) -> None:
        """Repairs the counters with what was really accepted, and delivers."""
        tracked.in_flight -= 1
        tracked.settled += entry.tokens
        if entry.is_discarded:
            return
        rejected = entry.drafts + 1 - len(tokens)
        tracked.settled -= rejected
        tracked.computed -= rejected
        tracked.placeholders -= entry.drafts + 1
        taken = tracked.deliver(tokens)
        self._counters.add("stops_inside_run", taken < len(tokens))
        self._count_boundary(tracked, entry, stayed=entry.tokens - rejected)
        if entry.drafts:
            self._counters.add("rejections", rejected > 0)
            self._counters.add("full_accepts", rejected == 0)
            self._counters.add("full_rejects", len(tokens) == 1)

    def _count_boundary(self, tracked: Tracked, entry: PlanEntry, *, stayed: int) -> None:
        """A decode step whose accepted tokens end exactly on a state boundary."""
        if self._engine.cache_mode.has_columns and entry.is_decode and stayed > 0:
            self._counters.add("boundary_hits", tracked.settled % self._engine.state_interval == 0)

    def _tokens_for_running(self, tracked: Tracked, step: int, budget: int) -> int:
        """Inputs to schedule for a running request; 0 or less skips it."""
        engine = self._engine
        was_planned = tracked.planned_step == step - 1
        if self._has_gap(tracked, step):
            self._counters.add("gaps")
            return 0
        if not was_planned and tracked.in_flight > 0:
            return 0  # its counts are not known yet, and its drafts are gone from the device
        if tracked.placeholders > 0 and tracked.delivered + 1 >= tracked.request.max_tokens:
            return 0  # the frames in flight are sure to finish it
        if not was_planned:
            tracked.drafts_next = self._parts.drafts_after_gap(tracked)
        drafts = tracked.drafts_next
        for event in self._events(step, DraftLimit):
            if event.request == tracked.name:
                drafts = min(drafts, event.drafts)
        tokens = len(tracked.tokens) + drafts + tracked.placeholders - tracked.computed
        if not tracked.is_decode:
            tokens = min(tokens, engine.prefill_chunk_max)
        tokens = min(tokens, budget, engine.model_len_max - 1 - tracked.computed)
        return tokens if tracked.is_decode else self._align_split(tracked, tokens)

    def _align_split(self, tracked: Tracked, tokens: int) -> int:
        """Where only its last state is kept a prefill chunk ends at a boundary."""
        if not self._engine.cache_mode.splits_chunks:
            return tokens
        interval = self._engine.state_interval
        last = tracked.prefill_len // interval * interval
        end = tracked.computed + tokens
        if end < last:
            return end // interval * interval - tracked.computed
        if tracked.computed < last < end:
            return last - tracked.computed
        return tokens

    def _grow_running(self, tracked: Tracked, tokens: int) -> bool:
        """Blocks for a running request, preempting from the tail; False if it fell itself.

        The tail is this request or a later one, never one that is already in the plan.
        """
        while not self._tables.grow(tracked, tokens):
            victim = self._running[-1]
            self._preempt(victim)
            if victim is tracked:
                return False
        return True

    def _admit(self, step: int, budget: int, planned: dict[str, tuple[Tracked, int, int]]) -> None:
        """Waiting requests, first come first served."""
        for tracked in list(self._waiting):
            if budget <= 0 or len(self._running) >= self._engine.rows_max:
                return
            if tracked.stale > 0:
                continue
            if self._has_gap(tracked, step):
                self._counters.add("gaps")
                continue
            tracked.prefill_len = len(tracked.tokens)
            tracked.computed = self._tables.hit_length(tracked)
            tokens = min(
                tracked.prefill_len - tracked.computed, self._engine.prefill_chunk_max, budget
            )
            tokens = self._align_split(tracked, tokens)
            if tokens <= 0 or not self._tables.admit(tracked, tokens):
                tracked.computed = 0
                return
            fails = tracked.loaded > 0 and step in self._engine.failing_loads
            if fails and self._parts.starts_again(tracked):
                self._lose(tracked, step, tokens)
                return
            self._counters.add("prefix_hits", tracked.computed > 0)
            tracked.settled = tracked.computed
            tracked.status = Status.RUNNING
            tracked.planned_step = -2
            self._waiting.remove(tracked)
            self._running.append(tracked)
            planned[tracked.name] = (tracked, tokens, 0)
            budget -= tokens

    def _lose(self, tracked: Tracked, step: int, tokens: int) -> None:
        """The load of a request fails: it gives its blocks back and waits, to compute it all."""
        tracked.planned_step = -2
        self._lost.append(self._entry(step, tracked, tokens, 0))
        self._tables.lose(tracked)
        tracked.computed = 0
        self._counters.add("lost_loads")

    def _entry(self, step: int, tracked: Tracked, tokens: int, drafts: int) -> PlanEntry:
        is_known = tracked.planned_step == step - 1
        return PlanEntry(
            request=tracked.name,
            incarnation=tracked.incarnation,
            tokens=tokens,
            drafts=drafts,
            computed=tracked.computed,
            prefill_len=tracked.prefill_len,
            blocks=tuple(tracked.blocks),
            state_blocks=tuple(tracked.state_blocks),
            known_tokens=None if is_known else tuple(tracked.tokens),
            fresh_blocks=tuple(tracked.fresh_blocks),
            fresh_state_blocks=tuple(tracked.fresh_state_blocks),
            loaded=tracked.loaded,
        )

    def _advance(self, tracked: Tracked, step: int, tokens: int, drafts: int) -> None:
        tracked.computed += tokens
        tracked.fresh_blocks, tracked.fresh_state_blocks, tracked.loaded = [], [], 0
        tracked.in_flight += 1
        tracked.planned_step = step
        if tracked.is_decode:
            tracked.placeholders += 1 + drafts
            tracked.drafts_next = self._engine.draft_len_max

    def _preempt(self, tracked: Tracked) -> None:
        """Frees everything at once; frames in flight become stale and will still deliver."""
        self._tables.release(tracked)
        tracked.computed = tracked.settled = tracked.placeholders = tracked.drafts_next = 0
        tracked.stale += tracked.in_flight
        tracked.in_flight = 0
        tracked.incarnation += 1
        tracked.status = Status.WAITING
        self._running.remove(tracked)
        self._waiting.appendleft(tracked)
        self._preempted.append(tracked.name)
        self._counters.add("preemptions")

    def _finish(self, tracked: Tracked, finish: Finish) -> None:
        if tracked.status is Status.RUNNING:
            self._running.remove(tracked)
        else:
            self._waiting.remove(tracked)
        self._tables.release(tracked)
        tracked.finish = finish
        tracked.status = Status.FINISHED
        self._unfinished -= 1
        self._ended.append(tracked.name)

    def _budget(self, step: int) -> int:
        if self._events(step, Dummy):
            return 0
        for event in self._events(step, Budget):
            return event.tokens
        return self._engine.tokens_per_step_max

    def _has_gap(self, tracked: Tracked, step: int) -> bool:
        return (tracked.name, step) in self._gaps

    def _events(self, step: int, kind: type[EventKind]) -> list[EventKind]:
        return [event for event in self._by_step.get(step, ()) if isinstance(event, kind)]
