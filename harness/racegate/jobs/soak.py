"""Soak: held runs of correct scenarios on a GPU, until one hangs, is wrong, or differs from the
virtual device; how a machine and its driver earn trust as a place to replay failures.

A scenario runs eagerly, with everything late, with each lane late, and then with drawn holds. Paced
eagerly a GPU owes the trace of the virtual device, with the same holds realised.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial, reduce
from itertools import count
from pathlib import Path

import msgspec

from racegate.check.checker import Checker
from racegate.check.expected import CheckError
from racegate.check.subject import ENGINE_ERRORS
from racegate.device.cuda.pacing import Pacing
from racegate.device.cuda.site import CudaSite
from racegate.device.cuda.torch import gpu_count, open_cuda
from racegate.explore.generate import generate_holds, seeded
from racegate.history.outcome import RunResult
from racegate.history.schedule import EAGER, LATE, Schedule, lane_late
from racegate.history.trace import Trace
from racegate.jobs.environment import environment_of
from racegate.jobs.pools.pool import Done, Event, Lost, Task
from racegate.jobs.pools.processes import process_pool
from racegate.jobs.stopping import StoppedError
from racegate.scenario.files import load
from racegate.scenario.settings import Layout
from racegate.scenario.spec import OwnScenario

SCHEMA = "racegate/1"
# A worker that says nothing for so long hangs: the watchdog ends a run that is held up in 10 s.
SILENT_S_MAX = 120.0


class SoakSpec(msgspec.Struct, frozen=True, kw_only=True):
    """runs: of all scenarios together, as many of each; seconds: no run begins later
    pacing: when operations run that no hold names
    """

    runs: int
    seconds: float | None
    workers: int
    seed: int
    pacing: Pacing


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """One scenario, or all of them.

    runs: how many were made
    held: runs in which an operation stood behind a closed latch; unrealised: those of them in which
        the program itself gave a hold up, because something had to wait for what it held
    expired: runs that the watchdog had to end; wrong: runs with a finding; differing: runs that,
        paced eagerly, left another trace than the virtual device
    examples: a few of the wrong and differing runs, in words
    """

    scenario: str
    runs: int = 0
    held: int = 0
    unrealised: int = 0
    expired: int = 0
    wrong: int = 0
    differing: int = 0
    examples: tuple[str, ...] = ()

    def plus(self, other: Tally) -> Tally:
        """Both together, under this one's name."""
        counts = {
            name: getattr(self, name) + getattr(other, name)
            for name in ("runs", "held", "unrealised", "expired", "wrong", "differing")
        }
        return Tally(
            scenario=self.scenario, examples=(self.examples + other.examples)[:5], **counts
        )


class SoakStop(msgspec.Struct, frozen=True, kw_only=True):
    """From a worker that could not make a run: why."""

    reason: str


class SoakResult(msgspec.Struct, frozen=True, kw_only=True):
    """Held runs of correct scenarios.

    plan: what was asked for; total: all scenarios together
    hung: where workers were that fell silent or were killed; failed: what ended workers
    scenarios: all of them, also those of which there was no run
    runs_per_second: of all workers together
    """

    schema: str
    environment: dict[str, str]
    plan: SoakSpec
    total: Tally
    seconds: float
    runs_per_second: float
    hung: tuple[str, ...]
    failed: tuple[str, ...]
    scenarios: tuple[Tally, ...]

    @property
    def unheld(self) -> tuple[str, ...]:
        """Scenarios of which nothing was held: nothing was shown of them."""
        return tuple(tally.scenario for tally in self.scenarios if not tally.held)


def schedules_for(lanes: Sequence[str], layout: Layout, seed: int) -> Iterator[Schedule]:
    """The schedules of a scenario: the systematic ones, then drawn ones without end."""
    yield from (EAGER, LATE, *map(lane_late, lanes))
    for number in count():
        yield generate_holds(seeded(seed, number), layout=layout)


def soak_scenario(scenario: OwnScenario, plan: SoakSpec, site: CudaSite) -> Iterator[Tally]:
    """One run after another without end, the first eager; a schedule that would hold nothing is no
    run.
    """
    judge, virtual = Checker(scenario, cuda=site), Checker(scenario)
    runs = 0
    for schedule in schedules_for(judge.lanes, scenario.engine.layout, plan.seed):
        expected = virtual.execute(schedule=schedule).trace
        if runs > 0 and not any(hold.matched for hold in expected.holds):
            continue
        yield soak_once(judge, site, schedule, expected)
        runs += 1


def soak_once(judge: Checker, site: CudaSite, schedule: Schedule, expected: Trace) -> Tally:
    """One schedule on the GPU. expected: the virtual device's trace"""
    run = judge.execute(schedule=schedule)
    result = judge.judge(run, schedule=schedule)
    differs = site.pacing is Pacing.EAGER and run.trace != expected
    return Tally(
        scenario=judge.scenario.name,
        runs=1,
        held=int(any(hold.matched for hold in result.holds)),
        unrealised=int(any(hold.realised < hold.matched for hold in result.holds)),
        expired=int(site.has_expired),
        wrong=int(bool(result.findings)),
        differing=int(differs),
        examples=(result_line(result),) if differs or result.findings else (),
    )


def result_line(result: RunResult) -> str:
    """A run in one line, for a person who wants to see it again."""
    holds = " ".join(f'--hold "{text}"' for text in result.schedule)
    return f"{result.scenario} {holds}: {result.verdict}"


class SoakWorker:
    """Takes its scenarios in turn, on one GPU of the machine. A task is a place in `paths`."""

    def __init__(self, site: CudaSite, paths: Sequence[Path], plan: SoakSpec) -> None:
        self._site = site
        self._paths = paths
        self._plan = plan
        self._soaked: dict[int, Iterator[Tally]] = {}

    def work(self, place: int) -> Tally | SoakStop:
        """The next run of a scenario."""
        if place not in self._soaked:
            scenario = load(self._paths[place])
            self._soaked[place] = soak_scenario(scenario, self._plan, self._site)
        try:
            return next(self._soaked[place])
        except (RuntimeError, CheckError, *ENGINE_ERRORS) as error:
            return SoakStop(reason=f"{type(error).__name__}: {error}")


def make_worker(paths: Sequence[Path], plan: SoakSpec, number: int) -> SoakWorker:
    """In a worker process: workers take turns with the GPUs of the machine."""
    site = CudaSite(open_cuda(number % gpu_count()), pacing=plan.pacing)
    return SoakWorker(site, paths, plan)


def soak(paths: Sequence[Path], plan: SoakSpec, on_run: Callable[[int], None]) -> SoakResult:
    """All scenarios, shared out among processes, and these among the GPUs of the machine. Even one
    worker is a process of its own: it may hang.

    Raises StoppedError if it is told to stop: its one result is what is known.
    """
    names = [load(path).name for path in paths]
    heard = SoakTally(tallies={name: Tally(scenario=name) for name in names})
    started = time.monotonic()
    end = math.inf if plan.seconds is None else started + plan.seconds
    runs_each = -(-plan.runs // len(paths))
    shares = [
        heard.tasks_of(worker, names, workers=plan.workers, runs_each=runs_each, end=end)
        for worker in range(plan.workers)
    ]
    pool = process_pool(silent_s=SILENT_S_MAX)
    try:
        with closing(pool.run(partial(make_worker, list(paths), plan), shares)) as events:
            for event in events:
                heard.take(event)
                on_run(heard.runs)
    except KeyboardInterrupt as stop:
        done = f"{heard.runs} of {plan.runs} runs made"
        again = "the same command, with another --seed for other schedules"
        result = _result(plan, heard, time.monotonic() - started)
        raise StoppedError(stop, done=done, go_on=again, results=[result]) from stop
    return _result(plan, heard, time.monotonic() - started)


@dataclass(slots=True)
class SoakTally:
    """What workers have said. hung: where they were that are lost; failed: why others stopped"""

    tallies: dict[str, Tally]
    hung: list[str] = field(default_factory=list)
    failed: dict[int, str] = field(default_factory=dict)

    @property
    def runs(self) -> int:
        """Of all scenarios."""
        return sum(tally.runs for tally in self.tallies.values())

    def tasks_of(
        self, worker: int, names: Sequence[str], *, workers: int, runs_each: int, end: float
    ) -> Iterator[Task[int]]:
        """Of every `workers`-th scenario one run after the other, in turn, until the end or until
        the worker has failed. The first always: a bound in time is no reason to look at nothing.
        """
        mine = range(worker, len(names), workers)
        for number, place in enumerate(place for _ in range(runs_each) for place in mine):
            if worker in self.failed or (number > 0 and time.monotonic() >= end):
                return
            yield Task(name=names[place], content=place)

    def take(self, event: Event[Tally | SoakStop]) -> None:
        """Adds what has been heard."""
        match event:
            case Done(result=Tally() as tally):
                self.tallies[tally.scenario] = self.tallies[tally.scenario].plus(tally)
            case Done(worker=worker, result=SoakStop(reason=reason)):
                self.failed[worker] = f"worker {worker}: {reason}"
            case Lost():
                self.hung.append(event.doing)


def _result(plan: SoakSpec, heard: SoakTally, seconds: float) -> SoakResult:
    total = reduce(Tally.plus, heard.tallies.values(), Tally(scenario="all"))
    return SoakResult(
        schema=SCHEMA,
        environment=environment_of("cuda"),
        plan=plan,
        total=total,
        seconds=seconds,
        runs_per_second=total.runs / seconds,
        hung=tuple(sorted(heard.hung)),
        failed=tuple(heard.failed[worker] for worker in sorted(heard.failed)),
        scenarios=tuple(heard.tallies[name] for name in sorted(heard.tallies)),
    )
