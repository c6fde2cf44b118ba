"""`--device cuda` where it cannot be: what is missing, why, and what to do instead."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from racegate.device.cuda_driver import NoCudaError
from racegate.device.cuda_torch import open_cuda

ROOT = Path(__file__).parents[2]
SCENARIO = "scenarios/two_row_cycle.toml"
WITNESS = "scenarios/witnesses/recycle-in-flight.witness.json"


def racegate(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command, which finds no GPU."""
    command = [sys.executable, "-c", "from racegate.cli import main; main()", *arguments]
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "command", [("run", SCENARIO), ("replay", WITNESS), ("bench",)], ids=lambda c: c[0]
)
def test_without_a_gpu_it_says_what_to_do(command: tuple[str, ...]) -> None:
    result = racegate(*command, "--device", "cuda", "--json", "-")
    assert result.returncode == 2
    assert result.stdout == ""
    assert "needs a GPU" in result.stderr
    assert "--device virtual" in result.stderr


def test_searching_on_a_gpu_is_refused() -> None:
    result = racegate("run", SCENARIO, "--device", "cuda", "--explore", "ladder")
    assert result.returncode == 2
    assert "leave --device cuda out" in result.stderr


def test_without_cuda_bindings_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    with pytest.raises(NoCudaError, match=r"cuda-bindings.*`\.\[gpu\]` installed"):
        open_cuda()
