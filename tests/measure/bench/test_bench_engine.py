"""The engine benchmarks measure what they say: at small sizes, on a driver without a GPU, with a
clock that ticks a millisecond and a profiler that saw what the test says.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from numpy_backend import numpy_backend
from racegate.device.cuda.device import CudaDevice
from racegate.device.recorder import NullRecorder, Recorder
from racegate.engine.engine import AsyncEngine
from racegate.engine.model.weights import make_weights
from racegate.measure.bench.cuda import BenchJob, BenchPart, cuda_jobs, has_failed, run_job
from racegate.measure.bench.engine import TRACED_SKIP, TRACED_STEPS, EngineBench, SteadyEngine
from racegate.measure.bench.intervals import DeviceSpan
from racegate.measure.bench.loads import (
    LARGE,
    SMALL,
    EngineLoad,
    decode_scenario,
    device_bytes,
    parameter_count,
    tiled_weights,
)
from racegate.measure.bench.overhead import held_entries, latch_entries, recording_entries
from racegate.measure.bench.profiler import spans_of
from racegate.measure.bench.virtual import BenchEntry
from racegate.scenario.settings import ModelSpec, Numerics
from racegate_kernels.backend import triton_backend
from sync_driver import SyncDriver, SyncEvent

TINY = EngineLoad(
    name="tiny",
    bound="host",
    model=ModelSpec(),
    batches=(3, 2),
    ratio_target=1.3,
    idle_target=0.02,
    steps=6,
    rounds=2,
)


class Ticks:
    """A clock that goes a millisecond further whenever it is asked."""

    def __init__(self) -> None:
        self._ticks = count()

    def __call__(self) -> float:
        return next(self._ticks) * 1e-3


class FakeTracer:
    """Runs the job and shows the spans that it was given."""

    def __init__(self, spans: list[DeviceSpan]) -> None:
        self._spans = spans

    def trace(self, job: Callable[[], None]) -> list[DeviceSpan]:
        job()
        return self._spans


def bench(spans: list[DeviceSpan] | None = None, driver: Any = None) -> EngineBench:
    driver = SyncDriver(numpy_backend()) if driver is None else driver
    return EngineBench(driver, FakeTracer([] if spans is None else spans), now=Ticks())


def values(entries: list[BenchEntry]) -> dict[str, float]:
    assert all(entry.detail for entry in entries)
    return {entry.name: entry.value for entry in entries}


def test_a_step_of_a_millisecond_is_a_token_of_a_millisecond_for_each_request() -> None:
    for batch in TINY.batches:
        found = values(bench().step_entries(TINY, batch))
        for depth in (1, 2):
            name = f"engine_tiny_b{batch}"
            assert found[f"{name}_tpot_ms_depth{depth}"] == pytest.approx(1.0)
            assert found[f"{name}_step_p50_ms_depth{depth}"] == pytest.approx(1.0)
            assert found[f"{name}_step_p99_ms_depth{depth}"] == pytest.approx(1.0)
            assert found[f"{name}_tokens_per_s_depth{depth}"] == pytest.approx(1e3 * batch)
        assert found[f"{name}_depth1_over_depth2"] == pytest.approx(1.0)


def test_depths_take_turns_on_new_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    init = CudaDevice.__init__

    def noted(self: Any, *args: Any, **options: Any) -> None:
        assert isinstance(options["recorder"], NullRecorder)
        init(self, *args, **options)

    engine = EngineBench._scenario

    def scenario(load: EngineLoad, *, batch: int, depth: int) -> Any:
        made.append(depth)
        return engine(load, batch=batch, depth=depth)

    monkeypatch.setattr(CudaDevice, "__init__", noted)
    monkeypatch.setattr(EngineBench, "_scenario", staticmethod(scenario))
    bench().step_entries(TINY, 2)
    assert made == [1, 2, 1, 2]


def test_no_engine_outlives_its_round(monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[int] = []
    init = CudaDevice.__init__

    def engines() -> int:
        return sum(type(thing) is AsyncEngine for thing in gc.get_objects())

    def counted(self: Any, *args: Any, **options: Any) -> None:
        alive.append(engines() - of_others)
        init(self, *args, **options)

    gc.collect()
    of_others = engines()  # another test of this process may keep one
    monkeypatch.setattr(CudaDevice, "__init__", counted)
    one = bench(profiled())
    one.step_entries(TINY, 2)
    one.idle_entries(TINY, 2)
    recording_entries(one, TINY, 2)
    assert alive == [0] * 10


def test_every_measured_step_replays_the_graph_and_all_requests_stay() -> None:
    for depth in (1, 2):
        with bench().steady(TINY, batch=3, depth=depth) as steady:
            assert steady._engine.frames_in_flight == depth - 1
            steady.measure(TINY.steps)
            steady.traced()
            assert not steady._engine.is_done
            result = steady._engine.result(0)
            assert set(result.finished.values()) == {"unfinished"}


def test_any_order_that_streams_allow_will_do() -> None:
    for seed in range(3):
        driver = SyncDriver(numpy_backend(), random=Random(seed))
        found = values(bench(driver=driver).step_entries(TINY, 2))
        assert found["engine_tiny_b2_tokens_per_s_depth2"] == pytest.approx(2e3)


def test_a_step_that_replays_nothing_is_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SteadyEngine, "_replays", lambda self: 0)
    job = BenchJob(name="tiny", measure=lambda: bench().step_entries(TINY, 2))
    (entry,) = run_job(job)
    assert entry.name == "tiny_failed"
    assert "0 of 6 steps replayed the graph" in entry.detail
    assert has_failed([entry])


def test_bfloat16_runs_on_the_launchers() -> None:
    pytest.importorskip("triton", reason="has wheels for Linux only")
    if torch.cuda.is_available():
        pytest.skip("with a GPU Triton is not interpreted")
    model = ModelSpec(numerics=Numerics.BFLOAT16)
    load = msgspec.structs.replace(TINY, model=model, rounds=1, steps=1)
    with bench(driver=SyncDriver(triton_backend())).steady(load, batch=2, depth=2) as steady:
        taken = steady.measure(load.steps)
        hidden: Any = steady._engine.runner._setup.work.hidden
        states: Any = steady._engine.runner._stages.model.states[0]
        caches: Any = steady._engine.runner._stages.model.caches[2]
    assert taken.tokens == 2
    assert hidden.storage.tensor.dtype == caches.storage.tensor.dtype == torch.bfloat16
    assert states.storage.tensor.dtype == torch.float32
    assert hidden.storage.tensor.isfinite().all()


def profiled() -> list[DeviceSpan]:
    """Steps of 10 us: 7 of a forward pass, 1 of the drafter, 2 idle; beside it a copy of 1."""
    spans = []
    for step in range(TRACED_SKIP + TRACED_STEPS):
        first = 10_000 * step
        spans.append(DeviceSpan("layer", 7, first, first + 7_000))
        spans.append(DeviceSpan("_scripted_draft_kernel", 7, first + 7_000, first + 8_000))
        spans.append(DeviceSpan("copy", 9, first + 8_500, first + 9_500, is_kernel=False))
    return spans


def test_idle_times_come_from_the_profiler() -> None:
    found = values(bench(profiled()).idle_entries(TINY, 2))
    for depth in (1, 2):
        name = f"engine_tiny_b2_depth{depth}"
        assert found[f"{name}_busy_ms"] == pytest.approx(9e-3)
        assert found[f"{name}_idle_share"] == pytest.approx(0.1)
        assert found[f"{name}_idle_between_steps_share"] == pytest.approx(0.1)


def test_a_profiler_that_saw_nothing_is_named() -> None:
    entries = bench([]).idle_entries(TINY, 2)
    assert [entry.name for entry in entries] == [
        "engine_tiny_b2_depth2_profiled_operations",
        "engine_tiny_b2_depth1_profiled_operations",
    ]
    assert all("idle times unknown" in entry.detail for entry in entries)


def test_an_exported_profile_is_read() -> None:
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "ts": 1.5, "dur": 2.25, "tid": 7}
    copy = kernel | {"cat": "gpu_memcpy", "args": {"stream": 13}}
    events = [kernel, copy, kernel | {"cat": "cuda_runtime"}, {"ph": "M", "name": "process"}]
    assert spans_of({"traceEvents": events}) == [
        DeviceSpan("k", 7, 1500, 3750),
        DeviceSpan("k", 13, 1500, 3750, is_kernel=False),
    ]


def test_recording_is_measured_beside_the_bare_engine() -> None:
    found = values(recording_entries(bench(), TINY, 2))
    assert found == {"recording_over_bare": pytest.approx(1.0)}


def test_without_a_recorder_the_engine_delivers_the_same() -> None:
    results = []
    for kind in (NullRecorder, Recorder):
        with bench().steady(TINY, batch=3, depth=2, recorder=kind) as steady:
            results.append(steady._engine.result(0))
    assert results[0] == results[1]


class FakeTimer:
    def event(self) -> SyncEvent:
        return SyncEvent()

    def between_ms(self, first: SyncEvent, second: SyncEvent) -> float:
        assert first.done and second.done
        return 1.0


def test_latches_are_put_and_passed() -> None:
    driver = SyncDriver(numpy_backend())
    found = values(latch_entries(driver, FakeTimer(), now=Ticks()))
    assert found == {"latch_put_host_us": pytest.approx(20.0), "latch_open_device_us": 0.0}
    assert driver.latched == 40 * (50 + 2)


def test_held_schedules_are_judged_and_realised() -> None:
    (entry,) = held_entries(SyncDriver(numpy_backend()), seconds=0.0, now=Ticks())
    assert entry.value > 0
    assert "60 of 60 realised" in entry.detail


def test_the_loads_are_as_large_as_promised() -> None:
    assert parameter_count(LARGE.model) >= 1e9
    assert SMALL.batches == LARGE.batches == (256, 64, 8)
    for load in (SMALL, LARGE):
        sizes = [
            device_bytes(decode_scenario(load, batch=batch, depth=2, steps=60))
            for batch in load.batches
        ]
        assert sizes == sorted(sizes, reverse=True)
        assert sizes[0] < 100e9


@pytest.mark.parametrize("numerics", Numerics)
def test_tiled_weights_fit_the_model(numerics: Numerics) -> None:
    model = ModelSpec(numerics=numerics, vocab_size=700_000)
    drawn, tiled = make_weights(model, has_mtp=False), tiled_weights(model)
    assert drawn.keys() == tiled.keys()
    for name, weight in drawn.items():
        assert (tiled[name].shape, tiled[name].dtype) == (weight.shape, weight.dtype)
        most = np.abs(weight.astype(np.float64)).max()
        assert np.abs(tiled[name].astype(np.float64)).max() <= 1.1 * most + 1.0
    rows = tiled["embed"].view(np.uint8).reshape(700_000, -1)
    assert len(np.unique(rows[::7_001], axis=0)) == len(rows[::7_001])


def test_jobs_follow_the_part() -> None:
    driver = SyncDriver(numpy_backend())
    names = {
        part: [job.name for job in cuda_jobs(driver, part=part, seconds=1.0)] for part in BenchPart
    }
    assert names[BenchPart.KERNELS] == ["kernels"]
    assert names[BenchPart.OVERHEAD] == ["latch", "recording", "held_schedules"]
    assert names[BenchPart.ENGINE][:2] == ["engine_small", "engine_small_b256"]
    assert names[BenchPart.ENGINE][-1] == "engine_large_b8_profile"
    assert len(names[BenchPart.ALL]) == sum(len(names[part]) for part in BenchPart) // 2
