"""The asynchronous engine: schedule, execute, and only then look at the output of an earlier step
(docs/mechanism.md#loop).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from racegate.device.protocol import Device
from racegate.engine.assembly import Site, make_runner, no_peers
from racegate.engine.decode.sampling import Frame
from racegate.engine.model.peers import Peers
from racegate.engine.observe.probe import Probe
from racegate.engine.parts import EngineParts
from racegate.engine.scheduling.scheduler import Scheduler
from racegate.engine.state.counters import Counters
from racegate.engine.state.setup import Setup
from racegate.history.run import EngineResult
from racegate.scenario.spec import OwnScenario


class EngineRun(Protocol):
    """What goes on step by step."""

    @property
    def is_done(self) -> bool:
        """Whether there is nothing left to do."""
        ...

    def step(self, step: int) -> None:
        """One iteration."""
        ...

    def result(self, steps: int) -> EngineResult:
        """What has been delivered in so many iterations."""
        ...


def run_to_end(engine: EngineRun, *, steps_max: int) -> EngineResult:
    """Step by step, until it is done or so many were made."""
    steps = 0
    while steps < steps_max and not engine.is_done:
        engine.step(steps)
        steps += 1
    return engine.result(steps)


class AsyncEngine:
    """A scheduler and a runner with up to `depth` steps in flight.

    weights: of the model, by name; drawn from its seed by default
    peers: makes the other ranks as this one sees them, of a model that is spread
    """

    def __init__(
        self,
        scenario: OwnScenario,
        device: Device,
        *,
        truth: Mapping[str, tuple[int, ...]],
        parts: EngineParts | None = None,
        probe: Probe | None = None,
        weights: Mapping[str, np.ndarray] | None = None,
        peers: Callable[[Setup], Peers] = no_peers,
    ) -> None:
        self._scenario = scenario
        self._device = device
        self._counters = Counters()
        self._probe = Probe() if probe is None else probe
        parts = EngineParts() if parts is None else parts
        self.scheduler = Scheduler(scenario, self._counters, parts.scheduling)
        self.runner = make_runner(
            Site(scenario, device, self._counters, peers),
            parts,
            truth=truth,
            probe=self._probe,
            weights=weights,
        )
        self._frames: deque[Frame] = deque()
        self._is_idle = False
        self._scheduled: dict[str, int] = {}

    def run(self) -> EngineResult:
        """Runs until every request has ended and nothing is in flight, or steps_max is reached."""
        return run_to_end(self, steps_max=self._scenario.steps_max)

    def step(self, step: int) -> None:
        """One iteration: plan and issue this step, then process the oldest one if the queue is
        full.
        """
        self.issue(step)
        self.settle(step)

    def issue(self, step: int) -> None:
        """Plans and issues this step."""
        with self._device.action("schedule", step=step):
            self.scheduler.begin_step(step)
            plan = self.scheduler.plan(step)
        for entry in plan.entries:
            scheduled = self._scheduled.get(entry.request, 0)
            self._scheduled[entry.request] = scheduled + 1
            self._device.mark(f"{entry.request}.{scheduled}", step=step)
        if plan.entries:
            in_flight = len(self._frames) + 1
            self._probe.scheduled(plan, self.scheduler, in_flight=in_flight)
        frame = self.runner.execute(plan)
        if frame is not None:
            self._frames.append(frame)
            self._count_rows(frame)
        self.scheduler.abort(step)
        self._is_idle = frame is None

    def settle(self, step: int) -> None:
        """Processes the oldest step in flight, if the queue is full or nothing was issued."""
        is_full = len(self._frames) >= self._scenario.engine.depth
        if self._frames and (is_full or self._is_idle):
            self._process(self._frames.popleft(), step)

    @property
    def frames_in_flight(self) -> int:
        """Steps issued whose output has not been processed."""
        return len(self._frames)

    def _process(self, frame: Frame, step: int) -> None:
        with self._device.action("process", step=step):
            sampled = self.runner.receive(frame, step=step)
            self.scheduler.process(frame.plan, sampled)
        self._probe.processed(frame.plan, self.scheduler)

    def _count_rows(self, frame: Frame) -> None:
        for entry in frame.plan.entries:
            self._counters.add("discarded_rows", entry.is_discarded)
            self._counters.add("zero_draft_rows", entry.is_decode and entry.drafts == 0)

    @property
    def is_done(self) -> bool:
        """Whether every request has ended and nothing is in flight."""
        return not self._frames and self.scheduler.is_done

    def result(self, steps: int) -> EngineResult:
        requests = self.scheduler.requests.values()
        return EngineResult(
            delivered={r.name: tuple(r.tokens[len(r.request.prompt) :]) for r in requests},
            finished={r.name: str(r.finish) for r in requests},
            steps=steps,
            counters=dict(self._counters.counts),
            unmet_events=(*self.scheduler.unmet_events, *self.runner.unmet_events),
            in_flight=len(self._frames),
        )
