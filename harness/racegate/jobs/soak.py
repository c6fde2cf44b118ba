"""Soak: held runs of correct scenarios on a GPU, until one hangs, is wrong, or differs from the
virtual device; how a machine and its driver earn trust as a place to replay failures.

A scenario runs eagerly, with everything late, with each lane late, and then with drawn holds. Paced
eagerly a GPU owes the trace of the virtual device, with the same holds realised.
"""

from __future__ import annotations

import math
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import count, cycle
from multiprocessing.queues import Queue
from pathlib import Path
from queue import Empty
from typing import Any

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
from racegate.jobs.orphans import is_orphan
from racegate.scenario.files import load
from racegate.scenario.spec import Scenario

SCHEMA = "racegate/1"
# A worker that says nothing for so long hangs: the watchdog ends a run that is held up in 10 s.
SILENT_S_MAX = 120.0


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """runs: of all scenarios together, as many of each; seconds: no run begins later"""

    runs: int
    seconds: float | None
    workers: int
    seed: int
    pacing: Pacing


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """One scenario.

    held: runs in which an operation stood behind a closed latch; unrealised: those of them in which
        the program itself gave a hold up, because something had to wait for what it held
    expired: runs that the watchdog had to end; wrong: runs with a finding; differing: runs that,
        paced eagerly, left another trace than the virtual device
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


class _Ran(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """From a worker: a run."""

    tally: Tally


class _At(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """From a worker: the scenario that it is about to run, or nothing if it has ended. failed: why
    it ended before its time.
    """

    worker: int
    scenario: str | None
    failed: str | None = None


class SoakResult(msgspec.Struct, frozen=True, kw_only=True):
    """hung: where workers were that fell silent or were killed; failed: what ended workers

    scenarios: all of them, also those of which there was no run
    runs_per_second: of all workers together
    """

    schema: str
    environment: dict[str, str]
    plan: Plan
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


def schedules_for(lanes: Sequence[str], seed: int) -> Iterator[Schedule]:
    """The schedules of a scenario: the systematic ones, then drawn ones without end."""
    yield from (EAGER, LATE, *map(lane_late, lanes))
    for number in count():
        yield generate_holds(seeded(seed, number))


def soak_scenario(scenario: Scenario, plan: Plan, site: CudaSite, *, share: int) -> Iterator[Tally]:
    """One run after another, the first eager; a schedule that would hold nothing is no run."""
    judge, virtual = Checker(scenario, cuda=site), Checker(scenario)
    runs = 0
    for schedule in schedules_for(judge.lanes, plan.seed):
        expected = virtual.execute(schedule=schedule).trace
        if runs > 0 and not any(hold.matched for hold in expected.holds):
            continue
        yield soak_once(judge, site, schedule, expected)
        runs += 1
        if runs == share:
            return


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


def soak(paths: Sequence[Path], plan: Plan, on_run: Callable[[int], None]) -> SoakResult:
    """All scenarios, shared out among processes, and these among the GPUs of the machine."""
    context = multiprocessing.get_context("spawn")
    queue: Queue[bytes] = context.Queue()
    share = -(-plan.runs // len(paths))
    shares = [list(paths[worker :: plan.workers]) for worker in range(plan.workers)]
    processes = [
        context.Process(target=_work, args=(worker, mine, plan, share, queue), daemon=True)
        for worker, mine in enumerate(shares)
    ]
    heard = _Heard(
        tallies={name: Tally(scenario=name) for name in (load(path).name for path in paths)},
        at=dict.fromkeys(range(plan.workers), "before its first scenario"),
        failed=[],
    )
    started = time.monotonic()
    for process in processes:
        process.start()
    try:
        _collect(queue, processes, heard, on_run)
    finally:
        for process in processes:
            process.terminate()
    seconds = time.monotonic() - started
    return _result(plan, heard, seconds)


@dataclass(slots=True)
class _Heard:
    """What workers have said. at: where each is that has not ended"""

    tallies: dict[str, Tally]
    at: dict[int, str]
    failed: list[str]


def _result(plan: Plan, heard: _Heard, seconds: float) -> SoakResult:
    total = reduce(Tally.plus, heard.tallies.values(), Tally(scenario="all"))
    return SoakResult(
        schema=SCHEMA,
        environment=environment_of("cuda"),
        plan=plan,
        total=total,
        seconds=seconds,
        runs_per_second=total.runs / seconds,
        hung=tuple(sorted(heard.at.values())),
        failed=tuple(heard.failed),
        scenarios=tuple(heard.tallies[name] for name in sorted(heard.tallies)),
    )


def _collect(
    queue: Queue[bytes], processes: Sequence[Any], heard: _Heard, on_run: Callable[[int], None]
) -> None:
    """Listens until all workers have ended, or nothing is heard any more."""
    last = time.monotonic()
    while heard.at and time.monotonic() - last < SILENT_S_MAX:
        try:
            message = msgspec.msgpack.decode(queue.get(timeout=0.5), type=_Ran | _At)
        except Empty:
            if not any(process.is_alive() for process in processes) and queue.empty():
                return
            continue
        last = time.monotonic()
        if isinstance(message, _Ran):
            name = message.tally.scenario
            heard.tallies[name] = heard.tallies[name].plus(message.tally)
            on_run(sum(tally.runs for tally in heard.tallies.values()))
            continue
        heard.at.pop(message.worker)
        if message.scenario is not None:
            heard.at[message.worker] = message.scenario
        if message.failed is not None:
            heard.failed.append(message.failed)


def _work(worker: int, paths: list[Path], plan: Plan, share: int, queue: Queue[bytes]) -> None:
    """One worker: where it is, and a tally per run, one of each scenario in turn."""
    failed = None
    try:
        for message in _runs(worker, paths, plan, share):
            if is_orphan():
                queue.cancel_join_thread()
                return
            queue.put(msgspec.msgpack.encode(message))
    except (RuntimeError, CheckError, *ENGINE_ERRORS) as error:
        failed = f"worker {worker}: {type(error).__name__}: {error}"
    queue.put(msgspec.msgpack.encode(_At(worker=worker, scenario=None, failed=failed)))


def _runs(worker: int, paths: list[Path], plan: Plan, share: int) -> Iterator[_At | _Ran]:
    site = CudaSite(open_cuda(worker % gpu_count()), pacing=plan.pacing)
    end = math.inf if plan.seconds is None else time.monotonic() + plan.seconds
    scenarios = [load(path) for path in paths]
    soaked = [soak_scenario(scenario, plan, site, share=share) for scenario in scenarios]
    for number in cycle(range(len(paths))) if paths else ():
        yield _At(worker=worker, scenario=scenarios[number].name)
        tally = next(soaked[number], None)
        if tally is None:
            return
        yield _Ran(tally=tally)
        if time.monotonic() >= end:
            return
