"""The benchmarks on a GPU as jobs: one that fails leaves the others their figures."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

import msgspec

from racegate.check.expected import CheckError
from racegate.device.cuda.driver import CudaDriver
from racegate.device.protocol import DeadlockError
from racegate.measure.bench.beside import (
    SIZES,
    GraphClock,
    PeerBench,
    compared_entries,
    comparisons,
)
from racegate.measure.bench.engine import EngineBench
from racegate.measure.bench.kernels import DeviceClock, kernel_entries
from racegate.measure.bench.loads import LARGE, SMALL
from racegate.measure.bench.overhead import (
    TorchTimer,
    held_entries,
    latch_entries,
    recording_entries,
)
from racegate.measure.bench.peers import Contender, MissingPeer, Update, own_contender
from racegate.measure.bench.profiler import TorchTracer
from racegate.measure.bench.virtual import BenchEntry

FAILED = "_failed"
MISSING = "_missing"
RECORDING_BATCH = 64


class BenchPart(StrEnum):
    """overhead: what recording, latches and judged schedules cost."""

    KERNELS = "kernels"
    ENGINE = "engine"
    OVERHEAD = "overhead"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchJob:
    """A few figures that are measured together."""

    name: str
    measure: Callable[[], list[BenchEntry]]


def cuda_jobs(cuda: CudaDriver, *, part: BenchPart, seconds: float) -> list[BenchJob]:
    """In the order in which they disturb each other least: large memory late, the profiler last.

    seconds: for the rate of judged schedules
    """
    bench, jobs = EngineBench(cuda, TorchTracer()), []
    if part in (BenchPart.KERNELS, BenchPart.ALL):
        measure = partial(kernel_entries, cuda.backend, DeviceClock())
        jobs.append(BenchJob(name="kernels", measure=measure))
    if part in (BenchPart.OVERHEAD, BenchPart.ALL):
        jobs += _overhead_jobs(cuda, bench, seconds)
    if part in (BenchPart.ENGINE, BenchPart.ALL):
        jobs += _engine_jobs(bench)
    return jobs


def peer_jobs(
    cuda: CudaDriver, contenders: Sequence[Contender], missing: Iterable[MissingPeer]
) -> list[BenchJob]:
    """The state updates beside the kernels of others; which peers are not there is a figure too."""
    own = [own_contender(cuda.backend, update) for update in Update]
    bench = PeerBench(clock=DeviceClock(), turns=GraphClock())
    absent = [
        BenchEntry(name=f"{peer.name}{MISSING}", value=0.0, unit="none", detail=peer.reason)
        for peer in missing
    ]
    jobs = [BenchJob(name="peers", measure=lambda: absent)]
    for comparison in comparisons():
        base = SIZES[comparison.update]
        measure = partial(compared_entries, comparison, [*own, *contenders], bench, base=base)
        jobs.append(BenchJob(name=comparison.name, measure=measure))
    return jobs


def _overhead_jobs(cuda: CudaDriver, bench: EngineBench, seconds: float) -> list[BenchJob]:
    recording = partial(recording_entries, bench, SMALL, RECORDING_BATCH)
    return [
        BenchJob(name="latch", measure=partial(latch_entries, cuda, TorchTimer())),
        BenchJob(name="recording", measure=recording),
        BenchJob(name="held_schedules", measure=partial(held_entries, cuda, seconds=seconds)),
    ]


def _engine_jobs(bench: EngineBench) -> list[BenchJob]:
    """All times before all profiles: a profiler that was on may leave every launch slower."""
    times, profiles = [], []
    for load in (SMALL, LARGE):
        name = f"engine_{load.name}"
        times.append(BenchJob(name=name, measure=partial(bench.size_entries, load)))
        for batch in load.batches:
            step = partial(bench.step_entries, load, batch)
            idle = partial(bench.idle_entries, load, batch)
            times.append(BenchJob(name=f"{name}_b{batch}", measure=step))
            profiles.append(BenchJob(name=f"{name}_b{batch}_profile", measure=idle))
    return times + profiles


def run_job(job: BenchJob) -> list[BenchEntry]:
    """Its figures, or one that says why there are none."""
    try:
        return job.measure()
    except _failures() as error:
        reason = f"{type(error).__name__}: {error}"
        return [BenchEntry(name=f"{job.name}{FAILED}", value=0.0, unit="none", detail=reason)]


def has_failed(entries: Iterable[BenchEntry]) -> bool:
    """Whether any figure is missing."""
    return any(entry.name.endswith(FAILED) for entry in entries)


def _failures() -> tuple[type[Exception], ...]:
    """What torch, Triton, CUDA and the engine raise when something does not work."""
    known: tuple[type[Exception], ...] = (
        RuntimeError,
        AssertionError,
        LookupError,
        ValueError,
        TypeError,
        AttributeError,
        ArithmeticError,
        OSError,
        ImportError,
        MemoryError,
        subprocess.SubprocessError,
        msgspec.MsgspecError,
        DeadlockError,
        CheckError,
    )
    try:
        from triton.errors import TritonError
    except ImportError:
        return known
    return (*known, TritonError)
