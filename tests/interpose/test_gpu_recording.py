"""What the GPU mode records, with the virtual runtime in the place of the real one."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_gpu import open_fake_gpu

from racegate.interpose.build import find_toolkit, forward_stub_source
from racegate.interpose.errors import BadInput
from racegate.interpose.judge import judge_on
from racegate.interpose.launch import Program
from racegate.interpose.outcome import Ending

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


def why_not() -> str:
    if not (HERE / "litmus").is_dir():
        return "tests/interpose/litmus is not in this checkout"
    try:
        find_toolkit()
    except BadInput as error:
        return str(error)
    return ""


needs_cuda_torch = pytest.mark.skipif(bool(why_not()), reason=why_not() or "it can run")


@needs_cuda_torch
def test_one_pair_of_each_theme_has_the_verdict_of_the_virtual_device() -> None:
    with open_fake_gpu() as device:
        for theme, pair in PAIRS.items():
            for name, is_racy in zip(pair, (True, False), strict=True):
                program = Program((str(HERE / "litmus_one.py"), theme, name), timeout_s=120)
                outcome = judge_on(
                    device, program, explores=False, runs_max=1, is_quiet=True
                ).outcome
                assert outcome.ending is Ending.FINISHED, outcome.message
                assert bool(outcome.findings) is is_racy, name


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
        assert f'int {name}(void) {{ return vg_unmodelled("{name}"); }}' in source
    for name in ("cudaGetDevice", "cudaFuncSetAttribute", "cudaPointerGetAttributes"):
        assert f"int {name}(void)" not in source
