"""What the harness costs on CUDA: recording, latches, and whole judged schedules with a hold."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from racegate.check.checker import Checker
from racegate.check.sharing import SharedRuns
from racegate.device.cuda.driver import CudaDriver, Handle
from racegate.device.cuda.latches import Latches
from racegate.device.cuda.pacing import PATIENCE_S, Pacing
from racegate.device.cuda.site import CudaSite
from racegate.device.cuda.watchdog import Watchdog
from racegate.device.recorder import NullRecorder, Recorder
from racegate.explore.generate import generate_holds, seeded
from racegate.history.outcome import RunResult
from racegate.history.schedule import Schedule
from racegate.measure.bench.engine import EngineBench
from racegate.measure.bench.loads import EngineLoad
from racegate.measure.bench.virtual import BenchEntry, bench_scenario, entry_of
from racegate.scenario.spec import OwnScenario

# So many latches stand behind a closed one at once: far fewer than a stream takes before the host
# blocks, which alone could open it.
LATCHES = 50
LATCH_ROUNDS = 40
HELD_TARGET = 20
# The same in every round, about a second together.
HELD_SCHEDULES, HELD_ROUNDS_MIN = 20, 3
DRAWN = 400


class TorchTimer:
    """CUDA events, recorded by the driver like any other."""

    def event(self) -> Handle:
        """An event that notes when it was recorded."""
        import torch

        return torch.cuda.Event(enable_timing=True)

    def between_ms(self, first: Any, second: Any) -> float:
        """Milliseconds from one record to a later one, both done."""
        return float(first.elapsed_time(second))


def recording_entries(bench: EngineBench, load: EngineLoad, batch: int) -> list[BenchEntry]:
    """Step times with and without the trace that the ordering oracle reads, in turn."""
    kinds: tuple[Callable[[tuple[str, ...]], Recorder], ...] = (NullRecorder, Recorder)
    medians: list[list[float]] = [[], []]
    for _ in range(load.rounds):
        for kind, taken in zip(kinds, medians, strict=True):
            with bench.steady(load, batch=batch, depth=2, recorder=kind) as steady:
                taken.append(statistics.median(steady.measure(load.steps).seconds))
            del steady
    bare, recorded = (1e3 * statistics.median(taken) for taken in medians)
    detail = f"{load.name} model, batch {batch}, depth 2: {recorded:.4g} ms to {bare:.4g} ms a step"
    return [entry_of("recording_over_bare", recorded / bare, "ratio", detail)]


def latch_entries(
    cuda: CudaDriver, timer: TorchTimer, *, now: Callable[[], float] = time.perf_counter
) -> list[BenchEntry]:
    """A latch put on a stream, and one that a stream meets open: many of them against none."""
    cuda.begin()
    stream, latches = cuda.stream(), Latches(cuda, cuda.stream())
    watchdog = Watchdog(seconds=PATIENCE_S, on_expiry=latches.expire)
    watchdog.start()
    host_us, device_us = [], []
    try:
        for _ in range(LATCH_ROUNDS):
            watchdog.beat()
            _, empty_ms = _behind_a_gate(cuda, timer, latches, stream, count=0, now=now)
            host_s, full_ms = _behind_a_gate(cuda, timer, latches, stream, count=LATCHES, now=now)
            host_us.append(1e6 * host_s / LATCHES)
            device_us.append(1e3 * (full_ms - empty_ms) / LATCHES)
    finally:
        watchdog.stop()
        latches.expire()
        cuda.drain()
    assert not watchdog.has_expired, "the host was blocked behind a latch"
    detail = f"median of {LATCH_ROUNDS} rounds of {LATCHES} latches"
    return [
        entry_of("latch_put_host_us", statistics.median(host_us), "us", f"per latch put; {detail}"),
        entry_of(
            "latch_open_device_us",
            statistics.median(device_us),
            "us",
            f"per latch met open, with its evidence; {detail}",
        ),
    ]


def _behind_a_gate(
    cuda: CudaDriver,
    timer: TorchTimer,
    latches: Latches,
    stream: Handle,
    *,
    count: int,
    now: Callable[[], float],
) -> tuple[float, float]:
    """Host seconds to put so many open latches, device milliseconds to pass them. A closed one in
    front lets the device start only when all are there.
    """
    ready = [latches.make() for _ in range(count)]
    for latch in ready:
        latches.open(latch)
    gate, first, second = latches.make(), timer.event(), timer.event()
    latches.put(stream, gate)
    try:
        cuda.record(first, stream)
        started = now()
        for latch in ready:
            latches.put(stream, latch)
        host_s = now() - started
        cuda.record(second, stream)
    finally:
        latches.open(gate)
    cuda.synchronize(second)
    return host_s, timer.between_ms(first, second)


def held_entries(
    cuda: CudaDriver, *, seconds: float, now: Callable[[], float] = time.perf_counter
) -> list[BenchEntry]:
    """Judged schedules with one drawn hold, each a run on the GPU; the median of equal rounds.

    The time is the host's, so what else runs on the machine shows: the fastest round says what one
    process can do.
    """
    scenario = bench_scenario()
    held = _held_schedules(scenario)[:HELD_SCHEDULES]
    checker = Checker(scenario, cuda=CudaSite(cuda, pacing=Pacing.EAGER))
    checker.run(schedule=held[0])
    rates: list[float] = []
    realised = 0
    started = now()
    while now() - started < seconds or len(rates) < HELD_ROUNDS_MIN:
        begun = now()
        realised += sum(_is_realised(checker.run(schedule=schedule)) for schedule in held)
        rates.append(len(held) / (now() - begun))
    detail = (
        f"{scenario.name}, 1 drawn hold, recording and all oracles, one process; median of "
        f"{len(rates)} rounds of {len(held)} (fastest {max(rates):.3g}); "
        f"{realised} of {len(rates) * len(held)} realised; target {HELD_TARGET}"
    )
    median = statistics.median(rates)
    return [entry_of("cuda_held_schedules_per_second", median, "1/s", detail)]


def _held_schedules(scenario: OwnScenario) -> list[Schedule]:
    """Drawn holds that hold something up to their point, which the virtual device knows."""
    shared = SharedRuns(Checker(scenario))
    drawn = [generate_holds(seeded(1, number)) for number in range(DRAWN)]
    single = [Schedule(holds=schedule.holds[:1]) for schedule in drawn if schedule.holds]
    return [s for s in single if shared.holds_all(s) and _is_realised(shared.run(s))]


def _is_realised(result: RunResult) -> bool:
    return all(hold.realised == hold.matched for hold in result.holds)
