"""Benchmarks on the virtual device: schedules per second on one core, and where the time goes."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable

import msgspec
import numpy as np

import racegate
from racegate.check import Checker
from racegate.scenario import Request, Scenario
from racegate.schedule import EAGER
from racegate.validation import validate


class BenchEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One figure."""

    name: str
    value: float
    unit: str
    detail: str


class BenchResult(msgspec.Struct, frozen=True, kw_only=True):
    """Serialises to the `bench` object of the JSON contract, without its schema field."""

    environment: dict[str, str]
    results: tuple[BenchEntry, ...]


def bench_scenario() -> Scenario:
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
    return validate(Scenario(name="bench-10x4", title="10 steps, 4 requests", requests=requests))


def run_bench(*, seconds: float) -> BenchResult:
    """Times the bare engine, the recorded engine, and the judged run, in turn."""
    scenario = bench_scenario()
    checker = Checker(scenario)
    last = checker.execute()
    assert last.result is not None
    shape = f"{scenario.name}: {last.result.steps} steps, {len(last.trace.events)} trace events"

    bare, recorded, judged = _median_seconds(
        (
            checker.execute_bare,
            checker.execute,
            lambda: checker.judge(last, schedule=EAGER),
        ),
        seconds=seconds,
    )
    whole = recorded + judged
    entries = [
        _entry(
            "schedules_per_second", 1.0 / whole, "1/s", f"recording and all oracles on; {shape}"
        ),
        _entry("engine_ms", 1e3 * bare, "ms", "the bare engine, nothing recorded"),
        _entry("recording_ms", 1e3 * (recorded - bare), "ms", "trace, clocks and observations"),
        _entry("oracles_ms", 1e3 * judged, "ms", "all oracles"),
        _entry(
            "harness_over_engine", (whole - bare) / bare, "ratio", "recording and oracles to engine"
        ),
    ]
    return BenchResult(environment=environment(), results=tuple(entries))


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


def _entry(name: str, value: float, unit: str, detail: str) -> BenchEntry:
    return BenchEntry(name=name, value=value, unit=unit, detail=detail)


def environment() -> dict[str, str]:
    """What a figure depends on."""
    return {
        "racegate": racegate.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "cores": str(os.cpu_count()),
    }
