"""Benchmarks on the virtual device: schedules per second of CPU time, and what the compiled core
has to do with it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count, islice
from random import Random

import msgspec

from racegate.check.checker import Checker
from racegate.check.forking import ForkedRuns
from racegate.check.selfcheck import racing_fault
from racegate.check.sharing import SharedRuns
from racegate.device.stepping import Stepper
from racegate.device.virtual.compiled import refused_core
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
HOLDS_MAX = 3
DRAWN_MAX = 2_000  # schedules drawn before the clock runs


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
    """The bare engine, the recorded engine, and the judged run, in turn, with and without the
    compiled core.
    """
    scenario = bench_scenario()
    checker = Checker(scenario)
    last = checker.execute()
    assert last.result is not None
    shape = f"{scenario.name}: {last.result.steps} steps, {len(last.trace.events)} trace events"
    jobs: tuple[Callable[[], object], ...] = (
        checker.subject.run_bare,
        checker.execute,
        lambda: checker.judge(last, schedule=EAGER),
    )
    taken = _taken((*jobs, *map(_in_python, jobs)), seconds=seconds)
    bare, recorded, judged, *plain = map(statistics.median, taken)
    whole, slow = recorded + judged, plain[1] + plain[2]
    ratio = (whole - bare) / bare
    return (
        entry_of("schedules_per_second_alone", 1.0 / whole, "1/s", f"nothing shared; {shape}"),
        _core_entry("schedules_per_second_alone", slow / whole),
        entry_of("engine_ms", 1e3 * bare, "ms", "the bare engine, nothing recorded"),
        _core_entry("engine", plain[0] / bare),
        entry_of("recording_ms", 1e3 * (recorded - bare), "ms", "trace, clocks and observations"),
        entry_of("oracles_ms", 1e3 * judged, "ms", "all oracles"),
        entry_of(
            "harness_over_engine", ratio, "ratio", "recording and oracles to engine; limit 0.4"
        ),
    )


def _core_entry(name: str, ratio: float) -> BenchEntry:
    detail = "times as fast as with nothing in C, in the same run"
    return entry_of(f"{name}_core_gain", ratio, "ratio", detail)


def _in_python(job: Callable[[], object]) -> Callable[[], object]:
    """The same without the compiled core."""

    def slower() -> object:
        with refused_core():
            return job()

    return slower


def _shared_entries(seconds: float) -> tuple[BenchEntry, ...]:
    """Schedules with one and with a few holds, sharing prefixes, suffixes and operations. None is
    run twice, as none is in a campaign: what is made anew is what they have in common.
    """
    entries = []
    for name, holds_max, detail in (
        ("schedules_per_second", HOLDS_MAX, "1 to 3 drawn holds; recording, all oracles"),
        ("schedules_per_second_one_hold", 1, "1 drawn hold; recording and all oracles"),
    ):
        job = _held_job(holds_max)
        with refused_core():
            plain = _held_job(holds_max)
        taken = _taken((job, _in_python(plain)), seconds=seconds)
        one, other = map(statistics.fmean, taken)
        entries += [entry_of(name, 1.0 / one, "1/s", f"{detail}; target 600")]
        entries += [_core_entry(name, other / one)]
    return tuple(entries)


def _held_job(holds_max: int) -> Callable[[], object]:
    """Runs one more drawn schedule whenever it is called, on what the ones before it left."""
    runs = SharedRuns(Checker(bench_scenario()))
    drawn = (generate_holds(seeded(1, number)) for number in count())
    # Only holds that hold something: one that names no operation would be no work.
    few = (
        Schedule(holds=schedule.holds[:holds_max])
        for schedule in drawn
        if schedule.holds and runs.holds_all(schedule)
    )
    ahead = list(islice(few, DRAWN_MAX))
    return lambda: runs.run(ahead.pop(0) if ahead else next(few))


def _searching_entries(seconds: float) -> tuple[BenchEntry, ...]:
    """The same reduction with forked runs, without the compiled core and with every run made whole,
    and the bare engine, in turn.
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

    jobs = (forked, _in_python(forked), whole, checker.subject.run_bare)
    one, plain, other, bare = map(statistics.median, _taken(jobs, seconds=seconds))
    detail = f"the first {SEARCHED} classes of {fault.name}, most of them wrong; target 150"
    return (
        entry_of("schedules_per_second_searching", SEARCHED / one, "1/s", detail),
        _core_entry("schedules_per_second_searching", plain / one),
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
    """Calls per second of CPU time, which does not ask what else the machine does."""
    calls = 0
    started = time.process_time()
    while time.process_time() - started < seconds or calls < 3:
        job(calls)
        calls += 1
    return calls / (time.process_time() - started)


def _taken(jobs: Sequence[Callable[[], object]], *, seconds: float) -> list[list[float]]:
    """Seconds of CPU time of each call of each job, taken in turn so that a drift of the machine
    meets all of them.
    """
    times: list[list[float]] = [[] for _ in jobs]
    end = time.process_time() + seconds * len(jobs)
    while time.process_time() < end or len(times[0]) < 3:
        for index, job in enumerate(jobs):
            started = time.process_time()
            job()
            times[index].append(time.process_time() - started)
    return times


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
