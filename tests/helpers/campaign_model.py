"""A campaign as a queue: workers that take as long as real ones took, a driver that hears one after
the other, a store that answers one at a time. Times are measured, what follows from them for more
workers than there are cores is simulated here (`reports/campaigns/scaling.py`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import simpy


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Measured, in seconds; of several one is drawn each time.

    tasks: of a scenario, in its worker: all of them in turn, shuffled, before one comes again
    delivery_s: of a task and its answer on their way
    events: of the driver at each answer, until the next task is sent
    looks: of the driver at workers of which one has answered, by their number
    takes_all: whether one look finds all answers that are there, or one of them
    saves: of the driver, to write how far the campaign is; syncs: until the store has it, in the
    first part of which, alone_s, it answers nobody else
    pause_s: from the end of one of these to the next, by how long it took
    """

    tasks: Sequence[float]
    delivery_s: float
    events: Sequence[float]
    looks: dict[int, float]
    takes_all: bool
    saves: Sequence[float]
    syncs: Sequence[float]
    alone_s: float
    pause_s: Callable[[float], float]

    def look_s(self, workers: int) -> float:
        """Between the numbers that were measured it grows evenly, as behind the last two."""
        known = sorted(self.looks.items())
        if len(known) == 1:
            return known[0][1]
        pairs = list(pairwise(known))
        (low, first), (high, last) = next((p for p in pairs if workers <= p[1][0]), pairs[-1])
        return max(0.0, first + (last - first) * (workers - low) / (high - low))


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What came of it. rate: scenarios a second; syncs_per_second: what the store was asked for
    workers_busy, driver_busy, store_busy: shares of the time
    """

    rate: float
    workers_busy: float
    driver_busy: float
    store_busy: float
    syncs_per_second: float


def simulated(
    times: Times, *, workers: int, scenarios: int, campaigns: int = 1, seed: int = 0
) -> Load:
    """Campaigns with so many workers each that share one store, for so many scenarios in all. What
    it takes to start a worker is left out: the rate is that from the moment each has answered once.
    """
    simulation = _Simulation(times, scenarios, random.Random(seed))
    drivers = [simulation.campaign(workers) for _ in range(campaigns)]
    world, heard = simulation.world, simulation.heard
    world.run(until=world.all_of(drivers))
    begun = workers * campaigns
    return Load(
        rate=(len(heard) - begun) / (heard[-1] - heard[begun - 1]),
        workers_busy=simulation.worked_s / (heard[-1] * begun),
        driver_busy=simulation.driven_s / (heard[-1] * campaigns),
        store_busy=simulation.stored_s / heard[-1],
        syncs_per_second=simulation.syncs / heard[-1],
    )


class _Simulation:
    """heard: when each answer was; the other sums are over all workers and drivers"""

    def __init__(self, times: Times, scenarios: int, draw: random.Random) -> None:
        self.world = simpy.Environment()
        self.heard: list[float] = []
        self.worked_s = self.driven_s = self.stored_s = 0.0
        self.syncs = 0
        self._times = times
        self._left = scenarios
        self._draw = draw
        self._tasks: list[float] = []
        self._store = simpy.Resource(self.world)

    def campaign(self, workers: int) -> simpy.Process:
        """Its driver, which ends when it has heard all that its workers do."""
        inbox = simpy.Store(self.world)
        for _ in range(workers):
            self._send(inbox)
        return self.world.process(self._drive(inbox, workers))

    def _send(self, inbox: simpy.Store) -> bool:
        """The next scenario to a worker, if there is one."""
        self._left -= 1
        if self._left >= 0:
            self.world.process(self._work(inbox))
        return self._left >= 0

    def _work(self, inbox: simpy.Store) -> Iterator[simpy.Event]:
        task_s = self._next_task_s()
        yield self.world.timeout(task_s + self._times.delivery_s)
        self.worked_s += task_s
        inbox.put(None)

    def _next_task_s(self) -> float:
        if not self._tasks:
            self._tasks = self._draw.sample(self._times.tasks, len(self._times.tasks))
        return self._tasks.pop()

    def _drive(self, inbox: simpy.Store, workers: int) -> Iterator[simpy.Event]:
        times, at_work = self._times, workers
        # Campaigns that begin together would go on asking for the store together.
        save_at = self._draw.uniform(0.0, times.pause_s(0.0))
        while at_work:
            yield inbox.get()
            began, answers = self.world.now, 1
            yield self.world.timeout(times.look_s(workers))
            if times.takes_all:
                answers += len(inbox.items)
                inbox.items.clear()
            for _ in range(answers):
                yield self.world.timeout(self._draw.choice(times.events))
                self.heard.append(self.world.now)
                if self.world.now > save_at:
                    save_at = yield from self._save()
                at_work -= not self._send(inbox)
            self.driven_s += self.world.now - began

    def _save(self) -> Generator[simpy.Event, None, float]:
        """When to save next."""
        began, sync_s = self.world.now, self._draw.choice(self._times.syncs)
        yield self.world.timeout(self._draw.choice(self._times.saves))
        alone_s = min(sync_s, self._times.alone_s)
        with self._store.request() as turn:
            yield turn
            yield self.world.timeout(alone_s)
        yield self.world.timeout(sync_s - alone_s)
        self.stored_s += alone_s
        self.syncs += 1
        return self.world.now + self._times.pause_s(self.world.now - began)
