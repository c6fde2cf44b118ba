"""Programs that see several GPUs in one process: streams, memory and copies of each."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from cuda_torch import needs_cuda_torch
from racegate.interpose.outcome import Ending
from racegate.targets.program.judge import ProgramVerdict, judge_on
from racegate.targets.program.launch import DeviceServer, Program

pytestmark = needs_cuda_torch

BEGIN = """
    import racegate, torch

    here = torch.zeros(256, device="cuda:0")
    there = torch.zeros(256, device="cuda:1")
    torch.cuda.synchronize(0)
    torch.cuda.synchronize(1)
    side = torch.cuda.Stream(device=1)
"""
# What a program does behind its beginning: the operations of its conflict, or none.
PROGRAMS = {
    "a copy waits for both current streams": (
        """
        here += 1
        there.copy_(here)
        there *= 2
        here += 1
        racegate.observe("there", there)
        """,
        (),
    ),
    "the copy's target is read on a side stream": (
        """
        there.copy_(here, non_blocking=True)
        with torch.cuda.stream(side):
            there + 1
        """,
        ("d2d", "add"),
    ),
    "the side stream waits for the target's GPU": (
        """
        there.copy_(here, non_blocking=True)
        side.wait_stream(torch.cuda.current_stream(1))
        with torch.cuda.stream(side):
            there + 1
        """,
        (),
    ),
    "a wait for the other GPU's default stream orders nothing": (
        """
        there += 1
        side.wait_stream(torch.cuda.current_stream(0))
        with torch.cuda.stream(side):
            there + 1
        """,
        ("add_", "add"),
    ),
    "an event of one GPU is waited for on another": (
        """
        here += 1
        event = torch.cuda.Event()
        event.record()
        with torch.cuda.stream(side):
            side.wait_event(event)
            there.copy_(here, non_blocking=True)
        here += 1
        """,
        (),
    ),
    "a wait for one whole GPU is none for another": (
        """
        pinned = torch.zeros(256, pin_memory=True)
        pinned.copy_(there, non_blocking=True)
        torch.cuda.synchronize(0)
        pinned[0].item()
        """,
        ("d2h", "host read"),
    ),
    "a wait for the GPU itself is one": (
        """
        pinned = torch.zeros(256, pin_memory=True)
        pinned.copy_(there, non_blocking=True)
        torch.cuda.synchronize(1)
        pinned[0].item()
        """,
        (),
    ),
}


def judged(device: DeviceServer, folder: Path, text: str) -> ProgramVerdict:
    script = folder / "script.py"
    script.write_text(textwrap.dedent(BEGIN) + textwrap.dedent(text))
    program = Program((str(script),), timeout_s=120, gpus=2)
    return judge_on(device, program, explores=False, runs_max=1, is_quiet=True)


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_gpu_has_streams_of_its_own(device: DeviceServer, tmp_path: Path, name: str) -> None:
    text, expected = PROGRAMS[name]
    found = judged(device, tmp_path, text)
    assert found.shown.ending is Ending.FINISHED, found.shown.message
    operations = [(one.first.operation, one.second.operation) for one in found.races]
    assert [(one, two.partition(" (")[0]) for one, two in operations] == [expected][: len(expected)]


MIXED = """
    here + there
"""


def test_operands_on_two_gpus_are_refused_as_torch_does(
    device: DeviceServer, tmp_path: Path
) -> None:
    found = judged(device, tmp_path, MIXED)
    assert found.shown.ending is Ending.FAILED
    assert "cuda:0 and cuda:1" in found.shown.message


ASKED_OF_NVML = """
    import ctypes

    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    count, text, index = ctypes.c_uint(), ctypes.create_string_buffer(96), ctypes.c_uint()
    assert nvml.nvmlInit_v2() == nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0
    names = []
    for number in range(count.value):
        gpu = ctypes.c_void_p()
        assert nvml.nvmlDeviceGetHandleByIndex_v2(number, ctypes.byref(gpu)) == 0
        assert nvml.nvmlDeviceGetUUID(gpu, text, len(text)) == 0
        names.append(text.value)
        by_name = ctypes.c_void_p()
        assert nvml.nvmlDeviceGetHandleByUUID(text.value, ctypes.byref(by_name)) == 0
        bus = f"00000000:0{number}:00.0".encode()
        by_bus = ctypes.c_void_p()
        assert nvml.nvmlDeviceGetHandleByPciBusId_v2(bus, ctypes.byref(by_bus)) == 0
        assert by_name.value == by_bus.value == gpu.value
        assert nvml.nvmlDeviceGetIndex(gpu, ctypes.byref(index)) == 0 and index.value == number
    assert len(set(names)) == count.value == torch.cuda.device_count() == 2
    assert nvml.nvmlDeviceGetHandleByIndex_v2(2, ctypes.byref(gpu)) != 0
"""


def test_nvml_tells_of_all_of_them(device: DeviceServer, tmp_path: Path) -> None:
    """DeepSpeed asks it for the GPU of each rank."""
    found = judged(device, tmp_path, ASKED_OF_NVML)
    assert found.shown.ending is Ending.FINISHED, found.shown.message
