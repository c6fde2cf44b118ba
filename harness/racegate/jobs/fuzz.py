"""Fuzzing: generated scenarios until a bound, every finding known once, written as it comes, and
then minimised.

The same seed gives the same findings as far as two runs got, with any number of workers. A worker
that has lost a canary ends the campaign, and so does every error of the harness: the scenario that
shows it is not counted, so that the same command begins with it. What was done by a worker that is
gone is done by another one; a scenario that takes this one with it too is tried alone, and set
aside if that takes workers with it as well.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import partial
from itertools import count
from typing import TypeAlias

import msgspec

from racegate.check.selfcheck import SelfCheck
from racegate.history.breakage import Caught
from racegate.jobs.campaign import Campaign, CampaignProgress
from racegate.jobs.generated import (
    Answer,
    CampaignSpec,
    GeneratedFinding,
    MinimisedFinding,
    Report,
    ScenarioWorker,
)
from racegate.jobs.pools.choice import HERE, WorkerPlace, pool_of
from racegate.jobs.pools.pool import (
    Done,
    Ended,
    Event,
    Failed,
    HandedBack,
    Lost,
    SetAside,
    Started,
    Task,
    Worker,
    in_order,
    spread,
)
from racegate.jobs.pools.time_limit import TIMEOUT_S
from racegate.jobs.stores.records import CampaignState, WorkerState
from racegate.jobs.stores.store import LEASE_S

SAVE_EVERY_S = 2.0
# Of a driver's time, for a store that many ask; and the longest pause that its lease lets it make.
SAVE_SHARE_MAX = 0.05
SAVE_PAUSE_MAX_S = LEASE_S / 3
# How long the workers may take for the scenario they are at, and their last canaries.
END_WITHIN_S = 120.0
# Workers that one scenario may take with it, among others and then alone.
LOSSES_MAX = 2


# From what decides a campaign, and the signatures that it knows.
MakeScenarioWorker: TypeAlias = Callable[
    [CampaignSpec, frozenset[str], int], Worker[int | GeneratedFinding, Answer]
]


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """How long a campaign goes on. seconds: of this run; scenarios: of all runs; whichever is met
    first, and None is no bound; timeout_s: for each scenario, 0 is no limit
    """

    seconds: float | None = None
    scenarios: int | None = None
    timeout_s: float = TIMEOUT_S


def fuzz(
    campaign: Campaign,
    bounds: Bounds,
    *,
    workers: int,
    make: MakeScenarioWorker | None = None,
    place: WorkerPlace = HERE,
    on_progress: Callable[[CampaignProgress], None] = lambda live: None,
) -> CampaignState:
    """Goes on with a campaign to a bound and returns what has been done in all runs together.

    Errors of the harness end it, and are among the campaign's breakages; told to stop it ends as
    well, and the campaign has what stopped it. make: its workers, if they are not those of our own
    engine; place: where they are

    Raises ClusterError.
    """
    return _Run(campaign, bounds, on_progress).run(workers, make or make_worker, place)


class _Shared(Iterator[Task[int | GeneratedFinding]]):
    """Tasks for all workers. That there was none is not for good: what was handed back may show
    something, and this is to be minimised.
    """

    def __init__(self, next_task: Callable[[], Task[int | GeneratedFinding] | None]) -> None:
        self._next_task = next_task

    def __next__(self) -> Task[int | GeneratedFinding]:
        task = self._next_task()
        if task is None:
            raise StopIteration
        return task


class _Run:
    """One run of a campaign."""

    def __init__(
        self, campaign: Campaign, bounds: Bounds, on_progress: Callable[[CampaignProgress], None]
    ) -> None:
        self._campaign = campaign
        self._bounds = bounds
        self._on_progress = on_progress
        self._started = self._saved = time.monotonic()
        self._end = math.inf if bounds.seconds is None else self._started + bounds.seconds
        self._save_pause_s = SAVE_EVERY_S
        self._last_new: float | None = None
        self._indices = self._left()
        self._is_broken = False

    def run(self, workers: int, make: MakeScenarioWorker, place: WorkerPlace) -> CampaignState:
        campaign = self._campaign
        campaign.unchecked = set(range(workers))
        made = partial(make, campaign.spec, frozenset(campaign.known))
        shares = spread(_Shared(self._next_task), workers)
        timeout_s = self._bounds.timeout_s
        pool = pool_of(workers, timeout_s=timeout_s, place=place, losses_max=LOSSES_MAX)
        command = f"the same command: it begins with scenario {campaign.done} of {campaign.folder}"
        try:
            with (
                Caught(f"campaign in {campaign.folder}", command=command) as caught,
                closing(pool.run(made, shares)) as events,
            ):
                for event in in_order(self._heard(events)):
                    self._take(event)
                    if time.monotonic() >= self._end + END_WITHIN_S:
                        break
            if caught.breakage is not None:
                campaign.breakages.append(caught.breakage)
        except KeyboardInterrupt as error:
            campaign.stop = error
        campaign.let_workers_go()
        state = self._save(time.monotonic())
        if campaign.shared is not None:
            campaign.shared.end(state)
        return state

    def _left(self) -> Iterator[int]:
        first, last = self._campaign.done, self._bounds.scenarios
        return iter(count(first) if last is None else range(first, last))

    def _next_task(self) -> Task[int | GeneratedFinding] | None:
        """What is to be minimised, and scenarios until the end, which a lost canary and an error of
        the harness bring at once.
        """
        again = f"the same command on {self._campaign.folder}"
        if self._campaign.breakages:
            return None
        if self._campaign.to_minimise:
            found = self._campaign.to_minimise.popleft()
            return Task(name=f"minimising {found.signature}", content=found, command=again)
        index = None if time.monotonic() >= self._end else next(self._indices, None)
        if index is None:
            return None
        return Task(name=f"scenario {index}", content=index, command=again)

    def _heard(self, events: Iterable[Event[Answer]]) -> Iterator[Event[Answer]]:
        """Writes what was found the moment it is heard of; after an error of the harness nothing
        else is done, and no later scenario counted.
        """
        unchecked = self._campaign.unchecked
        for event in events:
            self._note(event)
            # Here, where events come as they happen: a result waits for its turn behind this.
            match event:
                case Done(worker=worker):
                    unchecked.add(worker)
                case HandedBack(worker=worker) | SetAside(worker=worker):
                    unchecked.discard(worker)
                    self._campaign.losses.append(event.text)
                case Ended(worker=worker, result=SelfCheck()):
                    unchecked.discard(worker)
            match event:
                case Done(result=Report() as report):
                    self._campaign.heard(report)
                case Failed() | Lost():
                    self._campaign.breakages.append(event.breakage)
            yield event

    def _note(self, event: Event[Answer]) -> None:
        """What becomes of workers, for who looks on."""
        hear_of = self._campaign.hear_of
        match event:
            case Started(worker=worker, place=place):
                hear_of(worker, WorkerState.WORKING, "its start", place=place)
            case Done(worker=worker, name=did) | Failed(worker=worker, name=did):
                hear_of(worker, WorkerState.WORKING, did)
            case SetAside(worker=worker, name=at):
                hear_of(worker, WorkerState.LOST, at)
            case HandedBack(worker=worker, doing=at) | Lost(worker=worker, doing=at):
                hear_of(worker, WorkerState.LOST, at)
            case Ended(worker=worker):
                hear_of(worker, WorkerState.ENDED, "its end")

    def _take(self, event: Event[Answer]) -> None:
        now = time.monotonic()
        campaign = self._campaign
        match event:
            case Failed():
                self._is_broken = True
            case Done(result=Report() as report) if not self._is_broken:
                self._is_broken = bool(report.breakages)
                if campaign.add(report):
                    self._last_new = now
            case Done(result=MinimisedFinding() as answer):
                campaign.minimised(answer.signature, answer.small)
            case SetAside(content=int() | GeneratedFinding() as task) if not self._is_broken:
                campaign.put_aside(task, event.breakage)
            case Ended(result=SelfCheck() as check):
                campaign.check(check)
        if not campaign.selfcheck.is_sound or campaign.breakages:
            self._end = min(self._end, now)
        if now - self._saved > self._save_pause_s:
            self._save(now)
        last_new_s = None if self._last_new is None else now - self._last_new
        self._on_progress(self._campaign.live(now - self._started, last_new_s))

    def _save(self, now: float) -> CampaignState:
        """A full disk ends the campaign, and loses nothing but how far it is."""
        self._saved = now
        folder = self._campaign.folder
        with Caught(f"writing how far the campaign in {folder} is") as caught:
            state = self._campaign.save(now - self._started)
            self._saved = time.monotonic()
            self._save_pause_s = pause_after(self._saved - now)
            return state
        assert caught.breakage is not None
        self._campaign.breakages.append(caught.breakage)
        return self._campaign.state(now - self._started)


def pause_after(saved_in_s: float) -> float:
    """Until a campaign says again how far it is, after it took so long."""
    return min(max(SAVE_EVERY_S, saved_in_s / SAVE_SHARE_MAX), SAVE_PAUSE_MAX_S)


def make_worker(
    spec: CampaignSpec, known: frozenset[str], number: int
) -> Worker[int | GeneratedFinding, Answer]:
    """In a worker process; every worker is like the other."""
    return ScenarioWorker(spec, known)
