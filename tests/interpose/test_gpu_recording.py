"""What the GPU mode records, with the virtual runtime in the place of the real one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_gpu import open_fake_gpu

from cuda_torch import needs_cuda_torch, needs_litmus
from racegate.interpose.build import find_toolkit, forward_stub_source
from racegate.interpose.errors import BadInput
from racegate.interpose.outcome import Ending
from racegate.targets.program.judge import judge_on
from racegate.targets.program.launch import DeviceServer, Program

HERE = Path(__file__).parent
# theme: (racy, repaired)
PAIRS = {
    "allocator": ("missing_record_stream", "record_stream"),
    "autograd": ("gradient_hook_without_wait", "gradient_hook_with_wait"),
    "events": ("query_answer_ignored", "query_until_ready"),
    "graphs": ("graph_captured_upload_rewritten", "graph_captured_upload_waited_for"),
    "host_views": ("ctypes_read", "ctypes_read_after_event"),
    "slices": ("index_put_overlapping", "index_put_disjoint"),
}


@pytest.fixture(scope="module")
def fake_gpu() -> Iterator[DeviceServer]:
    with open_fake_gpu() as device:
        yield device


@needs_litmus
def test_one_pair_of_each_theme_has_the_verdict_of_the_virtual_device(
    fake_gpu: DeviceServer,
) -> None:
    for theme, pair in PAIRS.items():
        for name, is_racy in zip(pair, (True, False), strict=True):
            program = Program((str(HERE / "litmus_one.py"), theme, name), timeout_s=120)
            outcome = judge_on(fake_gpu, program, explores=False, runs_max=1, is_quiet=True).shown
            assert outcome.ending is Ending.FINISHED, outcome.message
            assert bool(outcome.findings) is is_racy, name


POWERS = """
import torch

def powers(device):
    x = torch.linspace(-1, 1, 8, device=device, requires_grad=True)
    torch.logaddexp2(x, x * 2).sum().backward()
    matrix = torch.linspace(0, 4, 16, device=device).view(4, 4)
    whole = torch.arange(4, device=device)
    out = torch.empty(4, device=device)
    torch.pow(2.5, whole, out=out)
    return (
        torch.ldexp(x.detach(), whole.repeat(2)), x.grad, torch.matrix_exp(matrix), out,
        torch.pow(2, whole), torch.pow(True, whole), torch.pow(1j, x.detach()),
        torch.pow(2.0, torch.tensor(3, device=device)),
    )

for here, there in zip(powers("cpu"), powers("cuda")):
    torch.testing.assert_close(there.cpu(), here)
"""


@needs_cuda_torch
def test_powers_of_a_number_go_past_what_a_python_kernel_cannot_be_given(
    fake_gpu: DeviceServer, tmp_path: Path
) -> None:
    (tmp_path / "powers.py").write_text(POWERS)
    program = Program((str(tmp_path / "powers.py"),), timeout_s=120)
    outcome = judge_on(fake_gpu, program, explores=False, runs_max=1, is_quiet=True).shown
    assert outcome.ending is Ending.FINISHED, outcome.message


def test_calls_that_touch_or_order_are_told_or_refused_and_the_others_pass() -> None:
    try:
        source = forward_stub_source(find_toolkit())
    except BadInput as error:
        pytest.skip(str(error))
    for name in (
        "cudaMemcpy3DAsync",
        "cudaGraphAddMemcpyNode",
        "cudaMallocAsync",
        "cudaDeviceReset",
    ):
        assert f'int {name}(void) {{ return vg_unmodelled_for("{name}", ' in source
    for name in ("cudaGetDevice", "cudaFuncSetAttribute", "cudaPointerGetAttributes"):
        assert f"int {name}(void)" not in source
