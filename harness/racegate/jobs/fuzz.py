"""Fuzzing: generated scenarios until a bound, every finding minimised, known once, and written as
it comes.

The same seed gives the same findings as far as two runs got, with any number of workers. A worker
that has lost a canary ends the campaign.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from itertools import count

import msgspec

from racegate.check.selfcheck import SelfCheck
from racegate.jobs.campaign import Campaign, CampaignProgress, CampaignState
from racegate.jobs.generated import CampaignSpec, Report, ScenarioWorker
from racegate.jobs.pool import (
    Done,
    Ended,
    Event,
    Lost,
    PoolError,
    Task,
    Worker,
    in_order,
    pool_of,
    spread,
)

SAVE_EVERY_S = 2.0
# How long the workers may take for the scenario they are at, and their last canaries.
END_WITHIN_S = 120.0


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """How long a campaign goes on. seconds: of this run; scenarios: of all runs; whichever is met
    first, and None is no bound
    """

    seconds: float | None = None
    scenarios: int | None = None


def fuzz(
    campaign: Campaign,
    bounds: Bounds,
    *,
    workers: int,
    on_progress: Callable[[CampaignProgress], None] = lambda live: None,
) -> CampaignState:
    """Goes on with a campaign to a bound and returns what has been done in all runs together.

    Raises PoolError if a worker is lost; what was found is kept.
    """
    return _Run(campaign, bounds, on_progress).run(workers)


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
        self._last_new: float | None = None

    def run(self, workers: int) -> CampaignState:
        campaign = self._campaign
        campaign.unchecked = set(range(workers))
        make = partial(make_worker, campaign.spec, frozenset(campaign.known))
        shares = spread(self._tasks(), workers)
        try:
            with closing(pool_of(workers).run(make, shares)) as events:
                for event in in_order(events):
                    self._take(event)
                    if time.monotonic() >= self._end + END_WITHIN_S:
                        break
        finally:
            state = campaign.save(time.monotonic() - self._started)
        return state

    def _tasks(self) -> Iterator[Task[int]]:
        """Scenarios until the end, which a lost canary brings at once."""
        first, last = self._campaign.done, self._bounds.scenarios
        for index in count(first) if last is None else range(first, last):
            if time.monotonic() >= self._end:
                return
            yield Task(name=f"scenario {index}", content=index)

    def _take(self, event: Event[Report | SelfCheck]) -> None:
        now = time.monotonic()
        match event:
            case Done(result=Report() as report):
                if self._campaign.add(report):
                    self._last_new = now
            case Ended(worker=worker, result=SelfCheck() as check):
                self._campaign.check(check)
                self._campaign.unchecked.discard(worker)
            case Lost():
                raise PoolError(
                    f"{event.text}. What was found is kept in {self._campaign.folder}, and the "
                    "same command goes on from there"
                )
        if not self._campaign.selfcheck.is_sound:
            self._end = min(self._end, now)
        if now - self._saved > SAVE_EVERY_S:
            self._campaign.save(now - self._started)
            self._saved = now
        last_new_s = None if self._last_new is None else now - self._last_new
        self._on_progress(self._campaign.live(now - self._started, last_new_s))


def make_worker(
    spec: CampaignSpec, known: frozenset[str], number: int
) -> Worker[int, Report | SelfCheck]:
    """In a worker process; every worker is like the other."""
    return ScenarioWorker(spec, known)
