"""Who does what next: each target's scenarios in their order, to workers that can run them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from racegate.jobs.fleet.targets import Target
from racegate.jobs.fleet.worker import FleetTask, Offers, ScenarioBatch, SurveyTask
from racegate.jobs.pools.pool import Task

# Scenarios that one process judges: engines of others take long to start.
BATCH = 4


@dataclass(slots=True)
class TargetQueue:
    """A target's way. next: the scenario to be handed out; is_open: whether more may be"""

    target: Target
    next: int
    is_open: bool = True


@dataclass(slots=True)
class FleetPlan:
    """What is left to do. last: scenarios of each target end before it, None is no bound

    is_over: whether no more is to be handed out
    offers: what workers can run, by number; none of a worker that has not said it
    given: targets of tasks that were handed out, by the task's name
    """

    lanes: Sequence[TargetQueue]
    last: int | None
    is_over: Callable[[], bool]
    command: str
    offers: dict[int, Offers] = field(default_factory=dict)
    given: dict[str, str] = field(default_factory=dict)

    def share(self, worker: int) -> FleetShare:
        """The tasks of a worker."""
        return FleetShare(self, worker)

    def runs(self, worker: int, target: str) -> bool:
        """Whether a worker has said that it can run a target."""
        offers = self.offers.get(worker)
        return offers is not None and target not in offers.lacking

    def lacking(self, target: str) -> str:
        """Why no worker can run a target; empty if one can."""
        if any(target not in offers.lacking for offers in self.offers.values()):
            return ""
        why = dict.fromkeys(offers.lacking[target] for offers in self.offers.values())
        return "; ".join(why) or "no worker has said what it can run"

    def next_task(self, worker: int) -> Task[FleetTask] | None:
        """First a target that few can run, then the one that is least far."""
        if self.is_over():
            return None
        if worker not in self.offers:
            return Task(name=f"what worker {worker} can run", content=SurveyTask())
        lanes = [each for each in self.lanes if self._is_left(each, worker)]
        if not lanes:
            return None
        lane = min(lanes, key=lambda each: (self._able(each), each.next))
        end = lane.next + BATCH if self.last is None else min(lane.next + BATCH, self.last)
        indices, lane.next = tuple(range(lane.next, end)), end
        name = f"{lane.target.name}, scenarios {indices[0]} to {indices[-1]}"
        batch = ScenarioBatch(target=lane.target.name, indices=indices)
        self.given[name] = batch.target
        return Task(name=name, content=batch, command=self.command)

    def _is_left(self, lane: TargetQueue, worker: int) -> bool:
        is_left = self.last is None or lane.next < self.last
        return lane.is_open and is_left and self.runs(worker, lane.target.name)

    def _able(self, lane: TargetQueue) -> int:
        return sum(self.runs(worker, lane.target.name) for worker in self.offers)


class FleetShare(Iterator[Task[FleetTask]]):
    """See pool.Shares. That there is nothing is not for good."""

    def __init__(self, plan: FleetPlan, worker: int) -> None:
        self._plan = plan
        self._worker = worker

    def __next__(self) -> Task[FleetTask]:
        task = self._plan.next_task(self._worker)
        if task is None:
            raise StopIteration
        return task

    def takes(self, task: Task[FleetTask]) -> bool:
        """Whether this worker does a task that was another one's: what only the other one can run
        is nothing to it.
        """
        content = task.content
        return isinstance(content, SurveyTask) or self._plan.runs(self._worker, content.target)
