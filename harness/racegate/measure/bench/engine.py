"""Benchmarks of the engine on CUDA, left to itself: nothing held, recorded or observed.

Depth 1 and depth 2 are measured in turn, each time on a new engine, so that a drift of the machine
meets both. All requests decode; every step replays the graph of the whole batch.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise

import msgspec
import numpy as np

from racegate.device.cuda.device import CudaDevice
from racegate.device.cuda.driver import CudaDriver
from racegate.device.cuda.pacing import Pace, Pacing
from racegate.device.recorder import NullRecorder, Recorder
from racegate.engine.engine import AsyncEngine
from racegate.engine.observe.probe import Probe
from racegate.engine.state.lanes import lanes_of
from racegate.measure.bench.intervals import Idle, idle_of
from racegate.measure.bench.loads import (
    EngineLoad,
    any_truth,
    decode_scenario,
    device_bytes,
    parameter_count,
    tiled_weights,
)
from racegate.measure.bench.profiler import TorchTracer
from racegate.measure.bench.virtual import BenchEntry, entry_of
from racegate.scenario.spec import OwnScenario

DEPTHS = (1, 2)
# Steps before anything is measured: prompts, then what a first time takes (kernels compile and
# load, memory is taken, events and buffers find their use).
WARM_STEPS = 10
PREFILL_STEPS_MAX = 8
TRACED_STEPS = 30
# A profiler is slow in its first steps: behind 5 of them the large model at batch 8 took 2.9 ms a
# step on an H200, behind 25 of them 2.3 ms, as without one.
TRACED_SKIP = 25
# The kernel that a step ends with, by the part of its name that compilers keep.
LAST_KERNEL = "scripted_draft_kernel"


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """Steps that were measured one after the other. seconds: of each; tokens: delivered in all."""

    seconds: tuple[float, ...]
    tokens: int

    @property
    def total_s(self) -> float:
        """Of all steps."""
        return sum(self.seconds)


class SteadyEngine:
    """An engine whose requests all decode. now: seconds on a clock."""

    def __init__(self, engine: AsyncEngine, cuda: CudaDriver, now: Callable[[], float]) -> None:
        self._engine = engine
        self._cuda = cuda
        self._now = now
        self._step = 0

    def warm_up(self) -> None:
        """Through the prompts, and on until nothing happens for the first time."""
        requests = self._engine.scheduler.requests.values()
        while not all(tracked.delivered for tracked in requests):
            assert self._step < PREFILL_STEPS_MAX, "the prompts do not end"
            self.advance(1)
        self.advance(WARM_STEPS)

    def advance(self, steps: int) -> None:
        """Goes on by so many steps."""
        for _ in range(steps):
            self._engine.step(self._step)
            self._step += 1

    def traced(self) -> None:
        """What a profiler looks at, up to the last operation on the device."""
        self.advance(TRACED_SKIP + TRACED_STEPS)
        self._cuda.drain()

    def measure(self, steps: int) -> Round:
        """The time of each step, and what was delivered meanwhile."""
        tokens, replays = self._delivered(), self._replays()
        # What was before is no part of a step.
        gc.collect()
        times = [self._now()]
        for _ in range(steps):
            self.advance(1)
            times.append(self._now())
        replayed = self._replays() - replays
        assert replayed == steps, f"{replayed} of {steps} steps replayed the graph"
        seconds = tuple(b - a for a, b in pairwise(times))
        return Round(seconds=seconds, tokens=self._delivered() - tokens)

    def _delivered(self) -> int:
        return sum(tracked.delivered for tracked in self._engine.scheduler.requests.values())

    def _replays(self) -> int:
        return self._engine.result(self._step).counters["graph_replays"]


class EngineBench:
    """Makes engines on one GPU, one after the other. now, tracer: what a test replaces."""

    def __init__(
        self, cuda: CudaDriver, tracer: TorchTracer, *, now: Callable[[], float] = time.perf_counter
    ) -> None:
        self._cuda = cuda
        self._tracer = tracer
        self._now = now
        self._weights: dict[str, Mapping[str, np.ndarray]] = {}

    @contextmanager
    def steady(
        self,
        load: EngineLoad,
        *,
        batch: int,
        depth: int,
        recorder: Callable[[tuple[str, ...]], Recorder] = NullRecorder,
    ) -> Iterator[SteadyEngine]:
        """An engine that has been warmed up. The caller forgets it behind the block: a graph that
        is destroyed while another is captured spoils the capture.
        """
        # Engines hang together in circles.
        gc.collect()
        scenario = self._scenario(load, batch=batch, depth=depth)
        lanes = lanes_of(scenario)
        device = CudaDevice(lanes, self._cuda, pace=Pace(Pacing.NATURAL), recorder=recorder(lanes))
        try:
            engine = AsyncEngine(
                scenario,
                device,
                truth=any_truth(scenario),
                probe=Probe(),
                weights=self._weights_of(load),
            )
            steady = SteadyEngine(engine, self._cuda, self._now)
            steady.warm_up()
            yield steady
        finally:
            device.close()

    @staticmethod
    def _scenario(load: EngineLoad, *, batch: int, depth: int) -> OwnScenario:
        steps = max(load.steps, TRACED_SKIP + TRACED_STEPS)
        steps += WARM_STEPS + PREFILL_STEPS_MAX
        return decode_scenario(load, batch=batch, depth=depth, steps=steps)

    def _weights_of(self, load: EngineLoad) -> Mapping[str, np.ndarray]:
        """Made once for all engines."""
        if load.name not in self._weights:
            self._weights[load.name] = tiled_weights(load.model)
        return self._weights[load.name]

    def size_entries(self, load: EngineLoad) -> list[BenchEntry]:
        """How large a model is, and what the largest batch takes."""
        batch = max(load.batches)
        size = device_bytes(self._scenario(load, batch=batch, depth=max(DEPTHS)))
        model = load.model
        detail = f"{model.numerics}, {len(model.layers)} layers, hidden {model.hidden_size}"
        name = f"engine_{load.name}"
        return [
            entry_of(
                f"{name}_parameters", parameter_count(model), "", f"{load.bound}-bound; {detail}"
            ),
            entry_of(f"{name}_device_bytes", size, "B", f"counted, at batch {batch}"),
        ]

    def step_entries(self, load: EngineLoad, batch: int) -> list[BenchEntry]:
        """Times of steps and tokens at each depth, and how the depths compare."""
        rounds: dict[int, list[Round]] = {depth: [] for depth in DEPTHS}
        for _ in range(load.rounds):
            for depth in DEPTHS:
                with self.steady(load, batch=batch, depth=depth) as steady:
                    rounds[depth].append(steady.measure(load.steps))
                del steady
        entries = [
            entry
            for depth in DEPTHS
            for entry in _depth_entries(_name(load, batch), depth, rounds[depth], batch)
        ]
        return [*entries, _ratio_entry(load, batch, rounds)]

    def idle_entries(self, load: EngineLoad, batch: int) -> list[BenchEntry]:
        """When the device was idle, by a profiler, the pipelined engine first."""
        entries = []
        for depth in reversed(DEPTHS):
            with self.steady(load, batch=batch, depth=depth) as steady:
                spans = self._tracer.trace(steady.traced)
            del steady
            name = f"{_name(load, batch)}_depth{depth}"
            idle = idle_of(spans, last=LAST_KERNEL, skip=TRACED_SKIP)
            if idle is None:
                detail = f"idle times unknown: fewer than two kernels {LAST_KERNEL} among them"
                entries.append(entry_of(f"{name}_profiled_operations", len(spans), "", detail))
            else:
                entries += _idle_entries(name, idle, load if depth == max(DEPTHS) else None)
        return entries


def _name(load: EngineLoad, batch: int) -> str:
    return f"engine_{load.name}_b{batch}"


def _tpot_ms(rounds: list[Round], batch: int) -> float:
    """Milliseconds between two tokens of one request."""
    tokens = sum(taken.tokens for taken in rounds)
    assert tokens > 0, "no token was delivered"
    return 1e3 * batch * sum(taken.total_s for taken in rounds) / tokens


def _depth_entries(name: str, depth: int, rounds: list[Round], batch: int) -> list[BenchEntry]:
    seconds = [second for taken in rounds for second in taken.seconds]
    tokens, total = sum(taken.tokens for taken in rounds), sum(seconds)
    p50, p99 = (1e3 * float(value) for value in np.percentile(seconds, (50, 99)))
    tokens_per_step = tokens / (batch * len(seconds))
    steps = f"{len(rounds)} rounds, {len(seconds)} steps"
    shape = f"{steps}, {tokens_per_step:.3g} tokens per request and step"
    return [
        entry_of(f"{name}_tpot_ms_depth{depth}", _tpot_ms(rounds, batch), "ms", shape),
        entry_of(f"{name}_step_p50_ms_depth{depth}", p50, "ms", "median time of a step"),
        entry_of(f"{name}_step_p99_ms_depth{depth}", p99, "ms", "99th percentile"),
        entry_of(f"{name}_tokens_per_s_depth{depth}", tokens / total, "1/s", "delivered"),
    ]


def _ratio_entry(load: EngineLoad, batch: int, rounds: dict[int, list[Round]]) -> BenchEntry:
    """The median over rounds, each beside the one that followed it."""
    first, second = (rounds[depth] for depth in DEPTHS)
    ratios = [
        _tpot_ms([one], batch) / _tpot_ms([other], batch)
        for one, other in zip(first, second, strict=True)
    ]
    detail = (
        f"time per token, depth 1 over depth 2, {min(ratios):.3f} to {max(ratios):.3f} in "
        f"{len(ratios)} rounds; {load.bound}-bound target {load.ratio_target}"
    )
    value = statistics.median(ratios)
    return entry_of(f"{_name(load, batch)}_depth1_over_depth2", value, "ratio", detail)


def _idle_entries(name: str, idle: Idle, load: EngineLoad | None) -> list[BenchEntry]:
    """load: the one whose target applies."""
    target = "no target"
    if load is not None and load.idle_target is not None:
        target = f"target {load.idle_target} where the GPU is the bound"
    per_step = 1e-6 / idle.steps
    shape = f"{idle.steps} profiled steps of {per_step * idle.total:.4g} ms"
    busy = per_step * idle.busy
    return [
        entry_of(f"{name}_busy_ms", busy, "ms", f"per step, on any stream; {shape}"),
        entry_of(f"{name}_idle_share", idle.idle_share, "ratio", f"nothing ran; {shape}"),
        entry_of(
            f"{name}_idle_between_steps_share",
            idle.between_share,
            "ratio",
            f"nothing ran from a step's last kernel to the next one's first; {target}",
        ),
    ]
