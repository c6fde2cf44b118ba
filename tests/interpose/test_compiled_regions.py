"""Regions that torch.compile compiled: as Inductor compiled them, and as plain Python."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from shutil import which

import pytest

from cuda_torch import needs_cuda_torch, why_not
from racegate.interpose.build import find_toolkit
from racegate.interpose.compiling import PLAIN_PYTHON
from racegate.interpose.outcome import CompileMode, Ending, Plan
from racegate.targets.program.judge import ProgramVerdict, judge_on
from racegate.targets.program.launch import DeviceServer, Program, open_device

HERE = Path(__file__).parent
CASES = HERE / "compiled_regions"
TORCH = "" if why_not() else find_toolkit().torch_version
needs_cxx = pytest.mark.skipif(which("g++") is None, reason="parts of regions on the CPU need g++")
needs_its_compiler = pytest.mark.skipif(
    not TORCH.startswith("2.14."), reason="what the compiler of torch 2.14 makes"
)
pytestmark = needs_cuda_torch


@pytest.fixture(scope="module")
def device() -> Iterator[DeviceServer]:
    """Of its own: it imports the compiler once."""
    with open_device() as opened:
        yield opened


def judged(device: DeviceServer, name: str, *arguments: str) -> ProgramVerdict:
    program = Program((str(CASES / f"{name}.py"), *arguments), timeout_s=300)
    verdicts = judge_on(device, program, explores=not arguments, runs_max=8, is_quiet=True)
    assert verdicts.shown.ending is Ending.FINISHED, verdicts.shown.message
    assert verdicts.shown.compiled_regions == 1
    return verdicts


# Programs that miss an edge around a region, with what reads or writes too early.
RACY = {
    "graph_output_read_late": ("sum", "graph"),
    "input_freed_early": ("kernel triton_poi_fused_add_mul_0", "fill_"),
    "pinned_input_overwritten": ("h2d", "host write (fill_)"),
    "region_on_a_side_stream": ("kernel triton_poi_fused_add_mul_relu_0", "sum"),
}


@pytest.mark.parametrize("name", RACY)
def test_a_missing_edge_around_a_region_is_found_and_shown(device: DeviceServer, name: str) -> None:
    racy, silent = judged(device, name), judged(device, name, "waits")
    (found,) = racy.races
    assert (found.first.operation, found.second.operation) == RACY[name]
    assert [one.landing is not None for one in racy.judged] == [True]
    assert silent.races == ()


# Programs that are right as Python, and what this compiler's own code lacks.
DROPPED = {
    "reuse_of_a_recorded_buffer": ("mm", "mm"),
    "upload_from_reused_buffer": ("h2d", "host write (mm)"),
    "write_back_behind_join": ("kernel triton_poi_fused_copy__1", "sum"),
}


@needs_its_compiler
@needs_cxx
@pytest.mark.parametrize("name", DROPPED)
def test_an_edge_that_the_compiler_drops_is_found_and_shown(
    device: DeviceServer, name: str
) -> None:
    verdicts = judged(device, name)
    (found,) = verdicts.races
    assert (found.first.operation, found.second.operation) == DROPPED[name]
    assert [one.landing is not None for one in verdicts.judged] == [True]
    as_python = Program((str(CASES / f"{name}.py"),), compiling=CompileMode.EAGER)
    assert device.run(as_python, Plan()).findings == ()


@needs_its_compiler
@needs_cxx
def test_downloads_that_the_compiler_waits_for_are_silent(device: DeviceServer) -> None:
    assert judged(device, "downloads_of_a_list").races == ()


@needs_cxx
def test_regions_compute_what_their_python_does(device: DeviceServer) -> None:
    outcome = device.run(Program((str(CASES / "values.py"),), timeout_s=300), Plan())
    assert (outcome.ending, outcome.message) == (Ending.FINISHED, "")
    assert outcome.findings == ()
    assert outcome.compiled_regions >= 11


def test_a_region_runs_as_plain_python_where_that_is_asked_for(device: DeviceServer) -> None:
    script = str(CASES / "region_on_a_side_stream.py")
    plain = device.run(Program((script,), compiling=CompileMode.EAGER), Plan())
    assert {race.first.operation for race in plain.findings} == {"mul"}
    assert (plain.compiled_regions, plain.not_seen) == (0, {PLAIN_PYTHON: 1})


def test_a_part_on_the_cpu_without_a_compiler_is_refused_by_name(
    device: DeviceServer, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os, torch\n"
        "os.environ['PATH'] = ''\n"
        "torch.compile(lambda x: (x.cpu() * 3.25).sum())(torch.ones(7, device='cuda'))\n"
    )
    outcome = device.run(Program((str(script),), timeout_s=300), Plan(), is_quiet=True)
    assert outcome.ending is Ending.NOT_MODELLED
    assert outcome.message.startswith("a region of torch.compile with a part on the CPU")
