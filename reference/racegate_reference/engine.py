"""The reference engine: plan, execution and delayed processing (DEFINITION section 5)."""

from __future__ import annotations

from collections import deque

import msgspec

from racegate.history.observe import Observation
from racegate.scenario.settings import Layout
from racegate.scenario.spec import OwnScenario, Rotate
from racegate_reference.events import Events
from racegate_reference.executor import Executor
from racegate_reference.frames import Frame, Result
from racegate_reference.observations import StepObserver, processed, scheduled
from racegate_reference.paths import Paths
from racegate_reference.rows import Rows, fresh_rows, next_rows, rotate
from racegate_reference.scheduler import Plan, Scheduler


class ReferenceRun(msgspec.Struct, frozen=True):
    """A finished run.

    finished: request -> "max_tokens" | "stop" | "abort" | "unfinished".
    steps: iterations used. margin: the smallest of any decision (see sampling.Draw).
    unmet_events: events without effect.
    """

    observations: tuple[Observation, ...]
    delivered: dict[str, tuple[int, ...]]
    finished: dict[str, str]
    steps: int
    margin: float
    unmet_events: tuple[str, ...]


def run_reference(scenario: OwnScenario, *, paths: Paths | None = None) -> ReferenceRun:
    """Runs a valid scenario to its end, or to `steps_max`. paths: where what it computes stays."""
    engine = Engine(scenario, paths)
    while not engine.done and engine.step < scenario.steps_max:
        engine.iterate()
    requests = engine.scheduler.requests.values()
    return ReferenceRun(
        observations=tuple(engine.observations),
        delivered={tracked.name: tuple(tracked.delivered) for tracked in requests},
        finished={tracked.name: tracked.outcome or "unfinished" for tracked in requests},
        steps=engine.step,
        margin=engine.executor.margin,
        unmet_events=engine.events.unmet(),
    )


class Engine:
    """The state of a run between two iterations; `step` is the next one."""

    def __init__(self, scenario: OwnScenario, paths: Paths | None = None) -> None:
        paths = Paths() if paths is None else paths
        self._depth = scenario.engine.depth
        self.events = Events(scenario.events)
        self.scheduler = Scheduler(scenario, self.events)
        self.executor = Executor(scenario, paths)
        self._observer = StepObserver(scenario, paths.model(scenario.model), self.executor)
        is_in_slots = scenario.engine.layout is Layout.SLOTS
        self._next_rows = fresh_rows if is_in_slots else next_rows
        self.step = 0
        self.rows: Rows = ()
        self.frames: deque[Frame] = deque()
        self.observations: list[Observation] = []

    @property
    def done(self) -> bool:
        """Every request is finished and no frame is in flight."""
        requests = self.scheduler.requests.values()
        return not self.frames and all(tracked.outcome is not None for tracked in requests)

    def iterate(self) -> None:
        """One iteration."""
        plan = self.scheduler.plan(self.step)
        self._arrange(plan)
        if plan.entries:
            self._execute(plan)
        self.scheduler.abort(self.step)
        if len(self.frames) == self._depth or (self.frames and not plan.entries):
            frame = self.frames.popleft()
            self.scheduler.process(frame)
            self.observations.append(processed(frame, self.scheduler.requests))
        self.step += 1

    def _arrange(self, plan: Plan) -> None:
        regions = {entry.request: entry.region for entry in plan.entries}
        self.rows = self._next_rows(self.rows, regions, plan.preempted)
        for index, event in self.events.at(Rotate, self.step):
            rotated = rotate(self.rows, event.requests, regions)
            if rotated is not None:
                self.rows = rotated
                self.events.meet(index)

    def _execute(self, plan: Plan) -> None:
        requests = self.scheduler.requests
        results = self.executor.execute(plan.entries)
        by_request: dict[str, Result] = {result.entry.request: result for result in results}
        in_rows = [by_request[name] for name in self.rows]
        self.observations += [
            scheduled(self.step, plan, requests),
            self._observer.prepared(self.step, in_rows),
            self._observer.inputs(self.step, in_rows, requests),
            self._observer.sampled(self.step, in_rows),
        ]
        self.frames.append(Frame(self.step, results))
