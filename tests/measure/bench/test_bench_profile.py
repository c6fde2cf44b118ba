"""The profile of runs: what a sample counts for, and the page that is made of the figures."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from types import FunctionType

import msgspec
import pytest

from racegate.measure.bench.profile import (
    ProfiledJob,
    SampledRuns,
    Stack,
    call_of,
    entries_of,
    kernel_of,
    layer_of,
    module_of,
    sampled,
)
from racegate.measure.bench.virtual import BenchResult
from racegate.report.measured.profile import render_profile

COMMITTED = Path("reports/search/profile.json")
ENGINE = ("racegate.engine.model.layers", "run")
LAUNCH = ("racegate.device.issuing", "launch")
LAUNCHER = ("racegate.device.virtual.launcher", "run")
KERNEL = ("racegate_kernels.norm", "norm_eager")
HELPER = ("racegate_kernels.numerics", "mix_eager")
IN_KERNEL: Stack = (HELPER, KERNEL, LAUNCHER, LAUNCH, ENGINE)


@pytest.mark.parametrize(
    ("stack", "layer", "kernel", "call"),
    [
        (IN_KERNEL, "kernels", "norm", "launch"),
        (IN_KERNEL[2:], "device", "", "launch"),
        ((ENGINE,), "engine", "", ""),
        ((("racegate.engine.observe.recording", "_add"), ENGINE), "observer", "", ""),
        ((("racegate.device.recorder", "issue"), LAUNCH, ENGINE), "recorder", "", "launch"),
        ((("racegate.order.clocks", "join"),), "clocks and shadow", "", ""),
        ((), "Python and NumPy alone", "", ""),
    ],
)
def test_a_sample_counts_for_the_innermost_function(
    stack: Stack, layer: str, kernel: str, call: str
) -> None:
    assert (layer_of(stack), kernel_of(stack), call_of(stack)) == (layer, kernel, call)
    assert module_of(stack) == (stack[0][0] if stack else "")


def test_a_stack_has_the_project_alone() -> None:
    """Functions of NumPy, of tests and of what runs the job are no part of it."""
    samples = SampledRuns()

    def seen() -> None:
        samples.take(signal.SIGPROF, sys._getframe())

    def around(inner: object) -> None:
        inner()  # type: ignore[operator]

    names = {"__name__": "racegate.device.issuing", "inner": seen}
    kernel = FunctionType(compile("inner()", "", "exec"), names)
    FunctionType(around.__code__, {"__name__": "racegate.measure.bench.profile"})(kernel)
    assert list(samples.stacks) == [(("racegate.device.issuing", "<module>"),)]


def test_sampling_leaves_no_timer_behind() -> None:
    before = signal.getsignal(signal.SIGPROF)
    samples = sampled(lambda: None, seconds=0.0)
    assert samples.runs == 1
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGPROF) is before


def test_parts_share_the_time_of_a_run() -> None:
    samples = SampledRuns(runs=5, seconds=2.0)
    samples.stacks.update({IN_KERNEL: 30, (ENGINE,): 69, (LAUNCHER, ENGINE): 1})
    job = ProfiledJob("bare", lambda: None, "alone", per=2)
    found = {entry.name: entry.value for entry in entries_of(job, samples, events=1000)}
    assert found["bare"] == pytest.approx(200_000.0)
    assert found["bare/event"] == pytest.approx(200.0)
    assert found["bare/layer/engine"] == pytest.approx(138_000.0)
    assert found["bare/layer/kernels"] == found["bare/kernel/norm"] == pytest.approx(60_000.0)
    assert found["bare/call of the device/launch"] == pytest.approx(60_000.0)
    assert found["bare/module/racegate_kernels.numerics"] == pytest.approx(60_000.0)
    samples.stacks[(ENGINE,)] += 1
    assert "bare/layer/device" not in {e.name for e in entries_of(job, samples, events=1000)}


def test_the_page_has_every_figure() -> None:
    samples = SampledRuns(runs=1, seconds=1.0)
    samples.stacks.update({IN_KERNEL: 1, (ENGINE,): 3})
    entries = tuple(entries_of(ProfiledJob("bare", lambda: None, "alone"), samples, events=10))
    known = dict.fromkeys(("commit", "python", "numpy", "system", "cpu"), "1")
    result = BenchResult(environment=known, results=entries)
    page = render_profile(result, command="racegate bench --profile")
    assert "Alone: **1,000,000 us**, 100000.0 us for each of the 10 trace events." in page
    assert "| engine | 750,000 | 75.0 % |" in page
    assert "| norm | 250,000 | 25.0 % |" in page


def test_the_committed_page_is_made_from_its_figures() -> None:
    content = msgspec.json.decode(COMMITTED.read_bytes())
    del content["schema"]
    result = msgspec.convert(content, BenchResult)
    page = COMMITTED.with_suffix(".md").read_text(encoding="utf-8")
    command = page.splitlines()[2].strip()
    assert page == render_profile(result, command=command)
