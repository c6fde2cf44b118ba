"""A run of a fleet: a campaign for each target, whose workers they share.

What a target shows depends on its sources, the seed and the index alone: scenarios are counted in
their order, each target for itself, so that one that hangs or dies keeps no other back.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from functools import partial
from pathlib import Path

from racegate.history.breakage import Breakage, Caught
from racegate.history.witness import Witness
from racegate.jobs.campaign import Campaign, CampaignProgress
from racegate.jobs.fleet.plan import BATCH, FleetPlan, TargetQueue
from racegate.jobs.fleet.targets import Target
from racegate.jobs.fleet.worker import (
    BatchReport,
    FleetAnswer,
    FleetSpec,
    FleetTask,
    FleetWorker,
    Offers,
    ScenarioBatch,
)
from racegate.jobs.fuzz import END_WITHIN_S, LOSSES_MAX, SAVE_EVERY_S, Bounds
from racegate.jobs.generated import Report
from racegate.jobs.pools.choice import HERE, WorkerPlace, pool_of
from racegate.jobs.pools.pool import (
    Done,
    Event,
    Failed,
    HandedBack,
    Lost,
    SetAside,
    Started,
    Worker,
)
from racegate.jobs.stores.folder import FolderStore
from racegate.jobs.stores.records import CampaignState
from racegate.scenario.untrusted.files import write_whole
from racegate.scenario.writing import toml_of

START_S = 300.0
# Scenarios without an answer, one after the other, behind which a target is given up.
UNANSWERED_MAX = 3


class TargetCampaign:
    """A target with what is known of it.

    pending: what was heard before its turn; why: it was given up, or broke
    """

    def __init__(self, target: Target, campaign: Campaign) -> None:
        self.target = target
        self.campaign = campaign
        self.why = ""
        self._pending: dict[int, Report | str] = {}
        self._unanswered = 0

    @property
    def is_open(self) -> bool:
        """Whether it goes on."""
        return not self.why

    def hear(self, report: BatchReport) -> None:
        """Writes what was found the moment it is heard of, and counts what has its turn."""
        self.campaign.check(report.selfcheck)
        for one in report.reports.values():
            self.campaign.heard(one)
        self.hear_each({**report.reports, **report.aside})

    def hear_each(self, said: dict[int, Report | str]) -> None:
        """By index: what was shown, or why nothing is known. Twice is once."""
        self._pending.update(said)
        while self.is_open and (index := self.campaign.done) in self._pending:
            self._count(index, self._pending.pop(index))

    def _count(self, index: int, said: Report | str) -> None:
        if isinstance(said, Report):
            self._unanswered = 0
            self.campaign.add(said)
            return
        self._unanswered += 1
        self.campaign.put_aside(index, Breakage(at=f"scenario {index}", error=said))
        if self._unanswered == UNANSWERED_MAX:
            self.why = f"given up after {UNANSWERED_MAX} scenarios without an answer: {said}"


class FleetRun:
    """One run. on_progress: gets how far each target is, by name"""

    def __init__(
        self,
        spec: FleetSpec,
        targets: Iterable[TargetCampaign],
        bounds: Bounds,
        *,
        on_progress: Callable[[dict[str, CampaignProgress]], None] = lambda live: None,
    ) -> None:
        self._spec = spec
        self.targets = {each.target.name: each for each in targets}
        self._on_progress = on_progress
        self._started = self._saved = time.monotonic()
        self._end = math.inf if bounds.seconds is None else self._started + bounds.seconds
        self.plan = FleetPlan(
            lanes=[TargetQueue(each.target, each.campaign.done) for each in self.targets.values()],
            last=bounds.scenarios,
            is_over=lambda: time.monotonic() >= self._end,
            command="the same command",
        )
        self.breakages: list[Breakage] = []
        self.losses: list[str] = []
        self.stop: KeyboardInterrupt | None = None

    def run(self, workers: int, place: WorkerPlace = HERE) -> dict[str, CampaignState]:
        """To a bound. Raises ClusterError."""
        limit_s = (BATCH + 1) * self._spec.timeout_s
        timeout_s = limit_s + START_S if limit_s else 0.0
        pool = pool_of(workers, timeout_s=timeout_s, place=place, losses_max=LOSSES_MAX)
        shares = [self.plan.share(worker) for worker in range(workers)]
        make = partial(make_fleet_worker, self._spec, place.gpus)
        try:
            with (
                Caught("the fleet", command=self.plan.command) as caught,
                closing(pool.run(make, shares)) as events,
            ):
                for event in events:
                    self._hear(event)
                    if time.monotonic() >= self._end + END_WITHIN_S:
                        break
            if caught.breakage is not None:
                self.breakages.append(caught.breakage)
        except KeyboardInterrupt as error:
            self.stop = error
        return self._finished()

    def _hear(self, event: Event[FleetAnswer]) -> None:
        match event:
            case Started(worker=worker):
                self.plan.offers.pop(worker, None)
            case Done(worker=worker, result=Offers() as offers):
                self.plan.offers[worker] = offers
            case Done(result=BatchReport() as report):
                self.targets[report.target].hear(report)
            case SetAside(content=ScenarioBatch() as batch):
                why = dict.fromkeys(batch.indices, event.breakage.error)
                self.targets[batch.target].hear_each(dict(why))
                self.losses.append(event.text)
            case HandedBack() | SetAside():
                self.losses.append(event.text)
            case Failed() | Lost():
                self._break(event.breakage)
        for lane in self.plan.lanes:
            lane.is_open = self.targets[lane.target.name].is_open
        now = time.monotonic()
        if now - self._saved > SAVE_EVERY_S:
            self._save(now)
        self._on_progress(self._live(now))

    def _break(self, breakage: Breakage) -> None:
        """What no worker says of a target leaves a gap that nothing can be counted behind."""
        self.breakages.append(breakage)
        if (name := self.plan.given.get(breakage.at)) is not None:
            self.targets[name].why = breakage.error

    def _live(self, now: float) -> dict[str, CampaignProgress]:
        seconds = now - self._started
        return {name: each.campaign.live(seconds, None) for name, each in self.targets.items()}

    def _save(self, now: float) -> dict[str, CampaignState]:
        """A full disk ends what cannot be written, and loses nothing but how far it is."""
        self._saved = now
        seconds = now - self._started
        states = {}
        for name, each in self.targets.items():
            with Caught(f"writing how far {name} is") as caught:
                states[name] = each.campaign.save(seconds)
            if caught.breakage is not None:
                self._break(caught.breakage)
                states[name] = each.campaign.state(seconds)
        return states

    def _finished(self) -> dict[str, CampaignState]:
        states = self._save(time.monotonic())
        for name, each in self.targets.items():
            with Caught(f"writing the scenarios of {name}") as caught:
                _write_scenarios(each.campaign.folder)
            if caught.breakage is not None:
                self.breakages.append(caught.breakage)
            if each.campaign.shared is not None:
                each.campaign.shared.end(states[name])
        return states


def _write_scenarios(folder: Path) -> None:
    """Those of findings of our own engine, beside them: what shows one again takes a file."""
    for kept in FolderStore(folder).findings():
        if isinstance(kept.witness, Witness):
            scenario = kept.witness.scenario
            write_whole(folder / f"{scenario.name}.toml", toml_of(scenario).encode())


def make_fleet_worker(spec: FleetSpec, gpus: int, number: int) -> Worker[FleetTask, FleetAnswer]:
    """In a worker process. On a cluster it sees no GPU but its own, here it takes the one with its
    number.
    """
    seen = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    names = seen.split(",") if seen else [str(gpu) for gpu in range(gpus)]
    return FleetWorker(spec, gpu=names[number % len(names)] if number < gpus else None)
