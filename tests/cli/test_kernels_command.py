"""`racegate kernels`: a test of a kernel library, and a summary for each kernel."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cuda_torch import needs_cuda_torch
from racegate.cli.foreign.kernels import app, program_of
from racegate.history.exit_code import ExitCode

LIBRARY = """
import torch, triton, triton.language as tl

@triton.jit
def double(x):
    me = tl.program_id(0)
    tl.store(x + me, tl.load(x + me) * 2)

@triton.jit
def total(x, y):
    tl.store(y, tl.load(y) + tl.load(x + tl.program_id(0)))

def test_double():
    x = torch.ones(4, device="cuda")
    double[(4,)](x)
    double[(2,)](x)
    assert x.tolist() == [4, 4, 2, 2]

def test_total():
    x, y = torch.ones(4, device="cuda"), torch.zeros(1, device="cuda")
    total[(4,)](x, y)
    assert y.item() == 5, "the library's own test fails"

def test_nothing():
    pass
"""


@pytest.fixture
def library(tmp_path: Path) -> Path:
    file = tmp_path / "test_library.py"
    file.write_text(LIBRARY)
    return file


def judged(test: str, folder: Path) -> tuple[int, list[tuple[object, ...]]]:
    """The exit code, and of each kernel its name, launches, programs and findings."""
    file = folder / "result.json"
    code = CliRunner().invoke(app, ["--json", str(file), test]).exit_code
    kernels = json.loads(file.read_text())["kernels"]
    keys = ("name", "launches", "programs", "findings")
    return code, [tuple(one[key] for key in keys) for one in kernels]


@needs_cuda_torch
@pytest.mark.parametrize(
    ("node", "code", "kernels"),
    [
        ("::test_double", ExitCode.CLEAN, [("double", 2, 6, 0)]),
        ("::test_total", ExitCode.FINDING, [("total", 1, 4, 3)]),
        ("::test_nothing", ExitCode.INCONCLUSIVE, []),
    ],
)
def test_each_kernel_is_summed_up(
    library: Path, tmp_path: Path, node: str, code: ExitCode, kernels: list[tuple[object, ...]]
) -> None:
    assert judged(f"{library}{node}", tmp_path) == (code, kernels)


def test_a_script_runs_by_itself_and_all_else_under_pytest() -> None:
    assert program_of(("bench.py", "--all")) == ("bench.py", "--all")
    for test in ("tests", "test_mine.py", "ops_test.py", "tests/ops.py::test_mine"):
        assert program_of((test, "-x"))[-2:] == (test, "-x")
        assert program_of((test,))[:2] == ("-m", "pytest")
