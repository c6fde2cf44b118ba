"""Regions that torch.compile compiled: as Inductor compiled them, and as plain Python."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from cuda_torch import needs_cuda_torch
from racegate.interpose.build import find_toolkit
from racegate.interpose.compiling import PLAIN_PYTHON
from racegate.interpose.outcome import CompileMode, DeviceKind, Ending, Outcome, Plan
from racegate.targets.common.server import open_server
from racegate.targets.common.variables import environment_for
from racegate.targets.program.launch import DeviceServer, Program

HERE = Path(__file__).parent
pytestmark = needs_cuda_torch


@pytest.fixture(scope="module")
def compiling() -> Iterator[DeviceServer]:
    environment = environment_for(find_toolkit(), DeviceKind.VIRTUAL)
    command = [sys.executable, str(HERE / "compiling_device.py"), ""]
    with open_server(command, environment, what="the device of compiled programs") as server:
        yield DeviceServer(server)


def run(
    device: DeviceServer, folder: Path, text: str, *, compiling: CompileMode | None = None
) -> Outcome:
    script = folder / "script.py"
    script.write_text(textwrap.dedent(text))
    outcome = device.run(Program((str(script),), 300, compiling=compiling), Plan())
    assert outcome.ending is Ending.FINISHED, outcome.message
    return outcome


SIDE = """
    import torch
    import racegate

    @torch.compile
    def scaled(x):
        return torch.relu(x + 1) * 2

    x = torch.arange(64.0, device="cuda") - 32
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = scaled(x)
    {wait}
    racegate.observe("sum", y.sum())
"""
WAITS = "torch.cuda.current_stream().wait_stream(side)"


def test_a_region_on_a_side_stream_has_to_be_waited_for(
    compiling: DeviceServer, tmp_path: Path
) -> None:
    silent = run(compiling, tmp_path, SIDE.format(wait=WAITS))
    assert (silent.findings, silent.compiled_regions, silent.not_seen) == ((), 1, {})
    racy = run(compiling, tmp_path, SIDE.format(wait="pass"))
    (found,) = racy.findings
    assert found.first.operation.startswith("kernel triton_poi_fused_add_mul_relu")
    assert [line for _, line, _ in found.first.stack] == [5, 13]
    assert found.second.operation == "sum"
    assert [one.preview for one in silent.observations] == ["1056.0"]


def test_a_region_runs_as_plain_python_where_that_is_asked_for(
    compiling: DeviceServer, tmp_path: Path
) -> None:
    found = run(compiling, tmp_path, SIDE.format(wait="pass"), compiling=CompileMode.EAGER)
    assert {race.first.operation for race in found.findings} == {"mul"}
    assert (found.compiled_regions, found.not_seen) == (0, {PLAIN_PYTHON: 1})
