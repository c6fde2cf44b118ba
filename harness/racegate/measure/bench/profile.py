"""Where the time of a run goes: stacks of the process, taken at equal steps of its CPU time.

A sample belongs to the innermost function of the project on its stack: what that asks of NumPy is
its own time. Sampling leaves calls as fast as they are, where a profiler that counts them would
make small functions look slow. Unlike wall time, CPU time does not ask what else a machine does.
"""

from __future__ import annotations

import gc
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from types import FrameType

from racegate.check.checker import Checker
from racegate.check.forking import ForkedRuns
from racegate.check.selfcheck import racing_fault
from racegate.check.sharing import SharedRuns
from racegate.device.virtual.memo import OpMemo
from racegate.explore.dpor import explore
from racegate.explore.generate import generate_holds, seeded
from racegate.history.schedule import EAGER
from racegate.jobs.environment import environment
from racegate.measure.bench.virtual import (
    SEARCHED,
    BenchEntry,
    BenchResult,
    bench_scenario,
    entry_of,
)

# As often as the kernel of the system looks at the CPU time of a process: more is not to be had.
SAMPLE_S = 0.004
DRAWN = 400
# A smaller part of a job rests on few samples: it stands in none of the tables.
SHARE_MIN = 0.01
# Rooms that run the jobs are part of none.
AROUND = frozenset({"measure", "cli"})

# The layers of the stack, by the beginning of a module's name in its package; the first that fits
# counts.
LAYERS = (
    ("racegate_kernels", "kernels"),
    ("racegate_reference", "reference"),
    ("engine.observe", "observer"),
    ("device.recorder", "recorder"),
    ("order", "clocks and shadow"),
    ("device", "device"),
    ("engine", "engine"),
    ("oracles", "oracles"),
    ("history", "oracles"),
    ("explore", "search"),
    ("check", "shared and forked runs"),
)
# Calls of the engine begin in a method of one of these.
CALLED = ("device.protocol", "device.issuing", "device.virtual.device", "device.memory")

Stack = tuple[tuple[str, str], ...]  # (module, function) of the project, the innermost first


@dataclass(slots=True)
class SampledRuns:
    """Stacks that were seen. runs: how often the job was done; seconds: of CPU time, for all"""

    stacks: Counter[Stack] = field(default_factory=Counter)
    runs: int = 0
    seconds: float = 0.0

    def take(self, _signal: int, frame: FrameType | None) -> None:
        """Adds the stack that a signal met."""
        self.stacks[tuple(_of_project(frame))] += 1


@dataclass(frozen=True, slots=True)
class ProfiledJob:
    """A job whose time is taken apart. per: how many runs one call makes"""

    name: str
    run: Callable[[], object]
    detail: str
    per: int = 1


def run_profile(*, seconds: float) -> BenchResult:
    """The profiles of all jobs, each for about `seconds` of CPU time."""
    entries: list[BenchEntry] = []
    events = len(Checker(bench_scenario()).execute().trace.events)
    for job in profiled_jobs():
        entries += entries_of(job, sampled(job.run, seconds=seconds), events=events)
    return BenchResult(environment=environment(), results=tuple(entries))


def profiled_jobs() -> Iterator[ProfiledJob]:
    """What a judged run is made of, and what searches do with one; first each kind of run once, so
    that nothing is imported or compiled on the clock.
    """
    scenario, fault = bench_scenario(), racing_fault()
    checker = Checker(scenario)
    last = checker.execute()
    yield ProfiledJob("bare", checker.subject.run_bare, "the engine alone, nothing recorded")
    yield ProfiledJob("recorded", checker.execute, "with trace, clocks and observations")
    audited = partial(checker.execute, is_audited=True)
    yield ProfiledJob("audited", audited, "recorded as a gate does it, its footprints audited")
    yield ProfiledJob("judged", lambda: checker.judge(last, schedule=EAGER), "oracles alone")
    yield ProfiledJob("reference", lambda: Checker(scenario), "reference, plain decoding, truth")

    def searched() -> None:
        explore(ForkedRuns(checker, fault, OpMemo()).run, classes_max=SEARCHED)

    detail = f"one of the first {SEARCHED} classes of {fault.name}"
    yield ProfiledJob("searched", searched, detail, SEARCHED)
    runs = SharedRuns(checker)
    drawn = [generate_holds(seeded(1, number)) for number in range(DRAWN)]
    few = [schedule for schedule in drawn if schedule.holds and runs.holds_all(schedule)]

    def held() -> None:
        for schedule in few:
            runs.run(schedule)

    yield ProfiledJob("held", held, "a schedule of one to three drawn holds", len(few))


def sampled(job: Callable[[], object], *, seconds: float) -> SampledRuns:
    """The stacks of a job that is done again and again. It is done once before that."""
    job()
    gc.collect()
    samples = SampledRuns()
    before = signal.signal(signal.SIGPROF, samples.take)
    begun = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, SAMPLE_S, SAMPLE_S)
    try:
        while samples.seconds < seconds or not samples.runs:
            job()
            samples.runs += 1
            samples.seconds = time.process_time() - begun
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    return samples


def entries_of(job: ProfiledJob, samples: SampledRuns, *, events: int) -> Iterator[BenchEntry]:
    """The time of one run, and its parts in four ways. events: of the trace of one run"""
    run_us = 1e6 * samples.seconds / (samples.runs * job.per)
    yield entry_of(job.name, run_us, "us", job.detail)
    yield entry_of(f"{job.name}/event", run_us / events, "us", f"by {events} trace events")
    for way, name_of in WAYS.items():
        parts: Counter[str] = Counter()
        for stack, count in samples.stacks.items():
            parts[name_of(stack)] += count
        whole = max(parts.total(), 1)
        for name, count in parts.most_common():
            if name and count >= SHARE_MIN * whole:
                share = count / whole
                yield entry_of(
                    f"{job.name}/{way}/{name}", share * run_us, "us", f"{100 * share:.1f} %"
                )


def _of_project(frame: FrameType | None) -> Iterator[tuple[str, str]]:
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith("racegate") and not AROUND.intersection(module.split(".")[1:2]):
            yield module, frame.f_code.co_name
        frame = frame.f_back


def layer_of(stack: Stack) -> str:
    """The layer of the innermost function."""
    if not stack:
        return "Python and NumPy alone"
    module = stack[0][0].removeprefix("racegate.")
    return next((layer for part, layer in LAYERS if module.startswith(part)), "other")


def module_of(stack: Stack) -> str:
    """The module of the innermost function."""
    return stack[0][0] if stack else ""


def kernel_of(stack: Stack) -> str:
    """The kernel that is at work, with the helpers that it calls; empty outside of kernels."""
    inside = [name for module, name in stack if module.startswith("racegate_kernels")]
    return inside[-1].removesuffix("_eager") if inside else ""


def call_of(stack: Stack) -> str:
    """The device's method that the engine has called; empty outside of the device."""
    called = [name for module, name in stack if module.removeprefix("racegate.") in CALLED]
    inside = [name for name in called if not name.startswith("_")]
    return inside[-1] if inside else ""


WAYS: dict[str, Callable[[Stack], str]] = {
    "layer": layer_of,
    "call of the device": call_of,
    "kernel": kernel_of,
    "module": module_of,
}
