"""The scheduler: optimistic plans, corrected as frames return (DEFINITION section 5)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from racegate.scenario.settings import CacheMode, EngineSpec
from racegate.scenario.spec import Abort, Budget, DraftLimit, Dummy, OwnScenario, Preempt
from racegate_reference.blocks import Blocks, Hit
from racegate_reference.decoding import is_last, is_stop
from racegate_reference.events import Events
from racegate_reference.frames import Entry, Frame, Result
from racegate_reference.rows import region_of
from racegate_reference.store import Store
from racegate_reference.tracking import Tracked


class Plan(msgspec.Struct, frozen=True):
    """The entries of a step in scheduling order, and who was preempted in its iteration."""

    entries: tuple[Entry, ...]
    preempted: tuple[str, ...]


@dataclass(slots=True)
class Planning:
    """A plan in the making: what is left of the budget, and the requests with their tokens."""

    step: int
    budget: int
    chosen: list[tuple[Tracked, int]] = field(default_factory=list)
    preempted: list[str] = field(default_factory=list)

    def choose(self, tracked: Tracked, n: int) -> None:
        self.chosen.append((tracked, n))
        self.budget -= n


class Scheduler:
    """Requests from arrival to their end."""

    def __init__(self, scenario: OwnScenario, events: Events) -> None:
        self._engine = scenario.engine
        self._cache_mode = scenario.engine.cache_mode
        self._events = events
        self.blocks = Blocks(scenario.engine)
        self.store = Store(scenario.engine.state_interval, scenario.engine.prefixes_max)
        self.requests = {request.name: Tracked(request) for request in scenario.requests}
        self.running: list[Tracked] = []
        self.waiting: list[Tracked] = []

    def plan(self, step: int) -> Plan:
        """Steps 1 and 2 of an iteration: preemptions and arrivals, then who computes how much."""
        forced = self._preempt_as_told(step)
        self.waiting += [t for t in self.requests.values() if t.request.arrive == step]
        planning = Planning(step, self._budget(step))
        self._plan_running(planning)
        if not planning.preempted:
            self._plan_waiting(planning)
        entries = tuple(self._advance(tracked, n, step) for tracked, n in planning.chosen)
        return Plan(entries, (*forced, *planning.preempted))

    def abort(self, step: int) -> None:
        """Step 4 of an iteration."""
        for index, event in self._events.at(Abort, step):
            tracked = self.requests[event.request]
            if tracked in self.running or tracked in self.waiting:
                self._finish(tracked, "abort")
                self._events.meet(index)

    def process(self, frame: Frame) -> None:
        """Step 5 of an iteration: the frame's tokens are delivered and the counters corrected."""
        for result in frame.results:
            tracked = self.requests[result.entry.request]
            if tracked.outcome is not None:
                continue
            if result.entry.incarnation == tracked.incarnation:
                self._process_current(tracked, result)
            else:
                tracked.stale -= 1
                self._deliver(tracked, result.emitted)

    # Planning

    def _preempt_as_told(self, step: int) -> list[str]:
        preempted: list[str] = []
        for index, event in self._events.at(Preempt, step):
            tracked = self.requests[event.request]
            if tracked in self.running:
                self._preempt(tracked)
                preempted.append(tracked.name)
                self._events.meet(index)
        return preempted

    def _budget(self, step: int) -> int:
        """The tokens that the step may schedule; a dummy step overrides a budget event."""
        for index, _ in self._events.at(Dummy, step):
            self._events.meet(index)
            return 0
        for index, event in self._events.at(Budget, step):
            self._events.meet(index)
            return event.tokens
        return self._engine.tokens_per_step_max

    def _plan_running(self, planning: Planning) -> None:
        # Only requests that are yet to be planned are preempted on the way: the victim is the
        # last one running, so the list never loses what was already passed.
        index = 0
        while index < len(self.running) and planning.budget > 0:
            tracked = self.running[index]
            index += 1
            if self._is_skipped(tracked, planning.step):
                continue
            self._limit_drafts(tracked, planning.step)
            n = self._running_tokens(tracked, planning.budget)
            if n <= 0:
                continue
            if not self._make_room(tracked, n, planning):
                return
            planning.choose(tracked, n)

    def _is_skipped(self, tracked: Tracked, step: int) -> bool:
        counts_unknown = tracked.planned != step - 1 and tracked.in_flight > 0
        end_certain = (
            tracked.placeholders > 0 and len(tracked.delivered) + 1 >= tracked.request.max_tokens
        )
        return counts_unknown or end_certain or self._events.in_gap(tracked.name, step)

    def _limit_drafts(self, tracked: Tracked, step: int) -> None:
        if tracked.planned != step - 1:
            tracked.drafts_next = 0
        for index, event in self._events.at(DraftLimit, step):
            if event.request == tracked.name and event.drafts < tracked.drafts_next:
                tracked.drafts_next = event.drafts
                self._events.meet(index)

    def _running_tokens(self, tracked: Tracked, budget: int) -> int:
        computed = tracked.computed
        n = tracked.length + tracked.drafts_next + tracked.placeholders - computed
        n = min(n, budget, self._engine.model_len_max - 1 - computed)
        if tracked.decoding:
            return n
        return self._split(tracked.prefill_len, computed, min(n, self._engine.prefill_chunk_max))

    def _split(self, prefill_len: int, computed: int, n: int) -> int:
        """A prefill chunk of n tokens, cut to end at a boundary if there are columns to fill."""
        if not self._cache_mode.splits_chunks:
            return n
        interval = self._engine.state_interval
        last, end = prefill_len // interval * interval, computed + n
        if end < last:
            return end // interval * interval - computed
        return last - computed if computed < last < end else n

    def _make_room(self, tracked: Tracked, n: int, planning: Planning) -> bool:
        """Takes the blocks for n tokens, from the last running requests if need be.

        False if the request itself had to go.
        """
        while not self.blocks.extend(tracked.tables, tracked.computed + n):
            victim = self.running[-1]
            self._preempt(victim)
            planning.preempted.append(victim.name)
            if victim is tracked:
                return False
        return True

    def _plan_waiting(self, planning: Planning) -> None:
        for tracked in list(self.waiting):
            if planning.budget == 0 or len(self.running) == self._engine.rows_max:
                return
            if tracked.stale > 0 or self._events.in_gap(tracked.name, planning.step):
                continue
            n = self._admit(tracked, planning)
            if n <= 0:
                return
            planning.choose(tracked, n)

    def _admit(self, tracked: Tracked, planning: Planning) -> int:
        """Makes a waiting request run; its tokens, or 0 if it cannot run yet."""
        tokens = tracked.tokens
        hit = self._hit(tracked)
        n = min(len(tokens) - hit.length, self._engine.prefill_chunk_max, planning.budget)
        n = self._split(len(tokens), hit.length, n)
        tables = self.blocks.admit(hit, hit.length + n) if n > 0 else None
        if tables is None:
            return 0
        if hit.length and planning.step in self._engine.failing_loads:
            self.blocks.release(tables)
            self.store.drop(tracked.key, hit.length)
            return 0
        tracked.tables, tracked.prefill_len, tracked.computed = tables, len(tokens), hit.length
        self.waiting.remove(tracked)
        self.running.append(tracked)
        return n

    def _hit(self, tracked: Tracked) -> Hit:
        """The longest prefix of the tokens that is published, or saved."""
        if self._cache_mode is CacheMode.OFFLOAD:
            return Hit(self.store.longest(tracked.key))
        return self.blocks.hit(tracked.key)

    def _advance(self, tracked: Tracked, n: int, step: int) -> Entry:
        """Counts the planned tokens as computed, and their drafts as accepted."""
        before, decoding = tracked.computed, tracked.decoding
        d = max(0, n + before - tracked.length - tracked.placeholders)
        chunk = before + n < tracked.prefill_len
        # The counter that an incarnation starts with is the length of its hit.
        loads = self._cache_mode is CacheMode.OFFLOAD and tracked.planned is None
        entry = Entry(
            request=tracked.name,
            incarnation=tracked.incarnation,
            tokens=n,
            drafts=d,
            computed=before,
            decode=decoding,
            chunk=chunk,
            round=tracked.rounds,
            loaded=before if loads else 0,
            region=region_of(
                computed=before,
                prefill_len=tracked.prefill_len,
                tokens=n,
                draft_len_max=self._engine.draft_len_max,
            ),
        )
        tracked.computed += n
        tracked.planned = step
        tracked.in_flight += 1
        if not chunk:
            tracked.placeholders += 1 + d
            tracked.drafts_next = self._engine.draft_len_max
            tracked.rounds += 1
        return entry

    def _preempt(self, tracked: Tracked) -> None:
        """A new incarnation begins at the head of waiting; what is in flight becomes stale."""
        self.blocks.release(tracked.tables)
        tracked.computed = tracked.placeholders = tracked.drafts_next = 0
        tracked.stale, tracked.in_flight = tracked.in_flight, 0
        tracked.incarnation += 1
        tracked.planned = None
        self.running.remove(tracked)
        self.waiting.insert(0, tracked)

    # Processing

    def _process_current(self, tracked: Tracked, result: Result) -> None:
        entry = result.entry
        tracked.in_flight -= 1
        if not entry.chunk:
            tracked.computed -= entry.drafts + 1 - len(result.emitted)
            tracked.placeholders -= entry.drafts + 1
            self._deliver(tracked, result.emitted)
        if tracked.outcome is None:
            self._keep_boundary(tracked, result)

    def _deliver(self, tracked: Tracked, tokens: Iterable[int]) -> None:
        request = tracked.request
        for token in tokens:
            tracked.delivered.append(token)
            count = len(tracked.delivered)
            if is_last(request, token, count=count):
                stopped = is_stop(request, token, count=count)
                self._finish(tracked, "stop" if stopped else "max_tokens")
                return

    def _finish(self, tracked: Tracked, outcome: str) -> None:
        tracked.outcome = outcome
        self.blocks.release(tracked.tables)
        for queue in (self.running, self.waiting):
            if tracked in queue:
                queue.remove(tracked)

    def _keep_boundary(self, tracked: Tracked, result: Result) -> None:
        """Publishes (align) or saves (offload) the prefix up to the boundary, if there is one."""
        for boundary in boundaries_of(result, self._engine):
            if boundary >= tracked.length:
                return
            if self._cache_mode.publishes:
                self.blocks.publish(tracked.tables, tracked.key, boundary)
            # Of a chunk the boundary is its very end.
            elif self._cache_mode is CacheMode.OFFLOAD and result.entry.chunk:
                self.store.save(tracked.key, boundary)


def boundaries_of(result: Result, engine: EngineSpec) -> list[int]:
    """The boundaries whose states a step leaves behind, rising (DEFINITION section 5, Publishing
    and all).
    """
    interval = engine.state_interval
    first = result.start // interval * interval + interval
    crossed = list(range(first, result.end + 1, interval))
    if engine.cache_mode is CacheMode.ALL:
        return crossed
    last = crossed[-1:]
    return last if result.entry.decode or last == [result.end] else []
