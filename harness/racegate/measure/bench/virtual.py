"""Benchmarks on the virtual device: schedules per second on one core, and where the time goes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from random import Random

import msgspec

from racegate.check.checker import Checker
from racegate.check.forking import ForkedRuns
from racegate.check.selfcheck import racing_fault
from racegate.check.sharing import SharedRuns
from racegate.device.stepping import Stepper
from racegate.device.virtual.memo import OpMemo
from racegate.explore.abstract import AbstractProgram, random_program, run_program
from racegate.explore.dpor import explore
from racegate.explore.generate import generate_holds, seeded
from racegate.explore.samplers.pct import PctStepper
from racegate.explore.samplers.pos import PosStepper
from racegate.explore.samplers.random_walk import RandomStepper
from racegate.history.schedule import EAGER, Schedule
from racegate.jobs.environment import environment
from racegate.scenario.spec import OwnScenario, Request
from racegate.scenario.validation import validate

SEARCHED = 20  # classes of a reduction


class BenchEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One figure. name: what was measured; value: how much, in `unit`; unit: of the value
    detail: on what, under which conditions
    """

    name: str
    value: float
    unit: str
    detail: str


def entry_of(name: str, value: float, unit: str, detail: str) -> BenchEntry:
    """One figure, in short."""
    return BenchEntry(name=name, value=value, unit=unit, detail=detail)


class BenchResult(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured.

    results: figure by figure; a job on CUDA that failed has one entry, its name with `_failed`
    """

    environment: dict[str, str]
    results: tuple[BenchEntry, ...]


def bench_scenario() -> OwnScenario:
    """The named scenario: 10 steps, 4 requests, exact, all layer kinds, mixed accepts, a finish and
    a condense.
    """
    requests = tuple(
        Request(
            name=name,
            arrive=0,
            prompt=tuple((7 * i + 3 * j) % 97 for j in range(5 + i)),
            max_tokens=max_tokens,
            accepts=accepts,
        )
        for i, (name, max_tokens, accepts) in enumerate(
            [
                ("A", 10, (4, 2, 1, 3)),
                ("B", 17, (3, 1, 4, 2)),
                ("C", 14, (2, 4, 1)),
                ("D", 13, (1, 3)),
            ]
        )
    )
    return validate(OwnScenario(name="bench-10x4", title="10 steps, 4 requests", requests=requests))


def run_bench(*, seconds: float) -> BenchResult:
    """All measurements of the virtual device, each for about `seconds`."""
    entries = (
        *_engine_entries(seconds),
        *_shared_entries(seconds),
        *_searching_entries(seconds),
        *_abstract_entries(seconds),
    )
    return BenchResult(environment=environment(), results=(*entries, *PEERS))


def _engine_entries(seconds: float) -> tuple[BenchEntry, ...]:
    """The bare engine, the recorded engine, and the judged run, in turn."""
    scenario = bench_scenario()
    checker = Checker(scenario)
    last = checker.execute()
    assert last.result is not None
    shape = f"{scenario.name}: {last.result.steps} steps, {len(last.trace.events)} trace events"
    bare, recorded, judged = _median_seconds(
        (
            checker.subject.run_bare,
            checker.execute,
            lambda: checker.judge(last, schedule=EAGER),
        ),
        seconds=seconds,
    )
    whole = recorded + judged
    ratio = (whole - bare) / bare
    return (
        entry_of("schedules_per_second_alone", 1.0 / whole, "1/s", f"nothing shared; {shape}"),
        entry_of("engine_ms", 1e3 * bare, "ms", "the bare engine, nothing recorded"),
        entry_of("recording_ms", 1e3 * (recorded - bare), "ms", "trace, clocks and observations"),
        entry_of("oracles_ms", 1e3 * judged, "ms", "all oracles"),
        entry_of("harness_over_engine", ratio, "ratio", "recording and oracles to engine; limit 1"),
    )


def _shared_entries(seconds: float) -> tuple[BenchEntry, ...]:
    """Schedules with one and with a few holds, sharing prefixes, suffixes and operations."""
    runs = SharedRuns(Checker(bench_scenario()))
    drawn = [generate_holds(seeded(1, number)) for number in range(2_000)]
    # Only holds that hold something: one that names no operation would be no work.
    few = [schedule for schedule in drawn if schedule.holds and runs.holds_all(schedule)]
    one = [Schedule(holds=schedule.holds[:1]) for schedule in few]
    entries = []
    for name, schedules, detail in (
        ("schedules_per_second", few, "1 to 3 drawn holds; recording, all oracles; target 300"),
        ("schedules_per_second_one_hold", one, "1 drawn hold; recording and all oracles"),
    ):
        rate = _rate(partial(_run_one, runs, schedules), seconds)
        entries.append(entry_of(name, rate, "1/s", detail))
    return tuple(entries)


def _run_one(runs: SharedRuns, schedules: list[Schedule], number: int) -> None:
    runs.run(schedules[number % len(schedules)])


def _searching_entries(seconds: float) -> tuple[BenchEntry, ...]:
    """The same reduction with forked runs and with every run made whole, and the bare engine, in
    turn.
    """
    checker, fault = Checker(bench_scenario()), racing_fault()

    def forked() -> None:
        explore(ForkedRuns(checker, fault, OpMemo()).run, classes_max=SEARCHED)

    def whole() -> None:
        memo = OpMemo()

        def run(stepper: Stepper) -> object:
            made = checker.execute(stepper=stepper, fault=fault, memo=memo)
            return checker.judged(made, fault=fault)

        explore(run, classes_max=SEARCHED)

    one, other, bare = _median_seconds((forked, whole, checker.subject.run_bare), seconds=seconds)
    detail = f"the first {SEARCHED} classes of {fault.name}, most of them wrong; target 150"
    return (
        entry_of("schedules_per_second_searching", SEARCHED / one, "1/s", detail),
        entry_of("forked_over_whole", other / one, "ratio", "against every run made whole"),
        entry_of("searching_over_bare", bare * SEARCHED / one, "ratio", "classes per bare run"),
    )


def _abstract_entries(seconds: float) -> tuple[BenchEntry, ...]:
    """Schedulers on an abstract device program of 80 steps."""
    program = random_program(Random(5), streams=3, steps=80, storages=20, waits=0.5)
    makers: dict[str, Callable[[int], Stepper]] = {
        "random": RandomStepper,
        "pos": PosStepper,
        "pct": lambda seed: PctStepper(seed, depth=3, steps=program.size),
    }
    return tuple(
        entry_of(
            f"abstract_{name}_per_second",
            _rate(partial(_run_abstract, program, make), seconds / len(makers)),
            "1/s",
            f"abstract program of {program.size} steps; target 5,000",
        )
        for name, make in makers.items()
    )


def _run_abstract(program: AbstractProgram, make: Callable[[int], Stepper], seed: int) -> None:
    run_program(program, make(seed))


def _rate(job: Callable[[int], object], seconds: float) -> float:
    """Calls per second."""
    count = 0
    started = time.perf_counter()
    while time.perf_counter() - started < seconds or count < 3:
        job(count)
        count += 1
    return count / (time.perf_counter() - started)


def _median_seconds(jobs: tuple[Callable[[], object], ...], *, seconds: float) -> list[float]:
    """Median time of each job, taken in turn so that a drift of the machine meets all of them."""
    times: list[list[float]] = [[] for _ in jobs]
    end = time.perf_counter() + seconds * len(jobs)
    while time.perf_counter() < end or len(times[0]) < 3:
        for index, job in enumerate(jobs):
            started = time.perf_counter()
            job()
            times[index].append(time.perf_counter() - started)
    return [statistics.median(taken) for taken in times]


def _peer(name: str, value: float, detail: str) -> BenchEntry:
    return entry_of(f"peer_{name}", value, "1/s", f"published or measured elsewhere: {detail}")


# For comparison; not measured here. Coyote: Deligiannis et al., TACAS 2023; SURW: the artefact of
# Zhao et al., ASPLOS 2025; frontrun 0.7.0; loom: tokio#3995.
PEERS = (
    _peer("coyote", 16, "Raft mock, 2,400 operations per schedule"),
    _peer("surw_harness", 57, "C programs, one process per run, upper median"),
    _peer("frontrun_dpor", 689, "two threads, no tensors, best case"),
    _peer("loom", 1500, "tokio's pool, estimate from public CI times"),
)
