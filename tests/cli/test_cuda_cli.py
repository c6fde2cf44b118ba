"""`--device cuda` where it cannot be: what is missing, why, and what to do instead."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import torch
from typer.testing import CliRunner

from racegate.cli.app import app
from racegate.device.cuda.driver import NoCudaError
from racegate.device.cuda.torch import open_cuda
from racegate.measure.bench.cuda import BenchJob, BenchPart
from racegate.measure.bench.virtual import BenchEntry
from warmed import run_command

ROOT = Path(__file__).parents[2]
SCENARIO = "scenarios/two_row_cycle.toml"
WITNESS = "scenarios/witnesses/recycle-in-flight.witness.json"


def racegate(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command, which finds no GPU."""
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    return run_command(*arguments, cwd=ROOT, env=env)


@pytest.mark.parametrize(
    "command",
    [
        ("run", SCENARIO, "--device", "cuda"),
        ("replay", WITNESS, "--device", "cuda"),
        ("bench", "--device", "cuda"),
        ("soak", "--runs", "10"),
    ],
    ids=lambda c: c[0],
)
def test_without_a_gpu_it_says_what_to_do(command: tuple[str, ...]) -> None:
    result = racegate(*command, "--json", "-")
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


def test_the_part_is_for_a_gpu() -> None:
    result = racegate("bench", "--part", "engine")
    assert result.returncode == 2
    assert "add --device cuda" in result.stderr


def test_a_job_that_fails_costs_its_own_figures_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken() -> list[BenchEntry]:
        raise RuntimeError("CUDA out of memory")

    def whole() -> list[BenchEntry]:
        return [BenchEntry(name="figure", value=2.0, unit="ms", detail="[target] 1")]

    def jobs(cuda: object, *, part: BenchPart, seconds: float) -> list[BenchJob]:
        assert (part, seconds) == (BenchPart.ENGINE, 1.5)
        return [BenchJob(name="one", measure=broken), BenchJob(name="other", measure=whole)]

    monkeypatch.setattr("racegate.cli.measure.bench.open_cuda", object)
    monkeypatch.setattr("racegate.cli.measure.bench.cuda_jobs", jobs)
    monkeypatch.setattr("racegate.cli.measure.bench.environment_of", lambda device: {"gpu": "none"})
    path = tmp_path / "bench.json"
    command = ["bench", "--device", "cuda", "--part", "engine", "--seconds", "1.5"]
    result = CliRunner().invoke(app, [*command, "--json", str(path)])
    assert result.exit_code == 3
    assert "figure 2 ms  ([target] 1)" in result.stderr
    found = msgspec.json.decode(path.read_bytes())
    assert found["environment"]["gpu"] == "none"
    assert [entry["name"] for entry in found["results"]] == ["one_failed", "figure"]
    assert found["results"][0]["detail"] == "RuntimeError: CUDA out of memory"
