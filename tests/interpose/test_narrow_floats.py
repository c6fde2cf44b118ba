"""bfloat16 and float8 in interpreted Triton kernels: bit for bit what an H200 computed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from racegate.interpose.kernels.narrow_floats import (
    _cut,
    _made_odd,
    _rounded,
    _single_rounded_to_odd,
)

ml_dtypes = pytest.importorskip("ml_dtypes")
KERNELS = Path(__file__).parents[1] / "helpers" / "narrow_kernels.py"
# `python tests/helpers/narrow_kernels.py narrow_floats_h200.npz` on that machine.
COMPILED = Path(__file__).parent / "narrow_floats_h200.npz"


def interpreted(file: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(KERNELS), str(file), *options],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )


def test_every_value_is_that_of_the_compiled_kernel(tmp_path: Path) -> None:
    done = interpreted(tmp_path / "found.npz")
    assert done.returncode == 0, done.stderr
    found, compiled = np.load(tmp_path / "found.npz"), np.load(COMPILED)
    assert "cuda, NVIDIA H200" in str(compiled["facts"])
    names = sorted(set(compiled.files) - {"facts"})
    assert names == sorted(set(found.files) - {"facts"})
    different = {name: int((found[name] != compiled[name]).sum()) for name in names}
    assert different == dict.fromkeys(names, 0)


def test_without_them_the_values_are_those_of_integers(tmp_path: Path) -> None:
    """What would be lost: the plain interpreter ends, or computes something else."""
    done = interpreted(tmp_path / "found.npz", "--plain")
    if done.returncode == 0:
        found, compiled = np.load(tmp_path / "found.npz"), np.load(COMPILED)
        assert (found["elementwise"] != compiled["elementwise"]).any()
    else:
        assert "InterpreterError" in done.stderr


def test_what_is_cut_lies_towards_zero() -> None:
    random = np.random.default_rng(11)
    values = random.standard_normal(500) * 2.0 ** random.integers(-20, 16, 500)
    values = values.astype(np.float32)
    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        dtype = np.dtype(getattr(ml_dtypes, name))
        largest = float(ml_dtypes.finfo(dtype).max)
        inside = values[np.abs(values) < largest]
        cut = _cut(inside, dtype).astype(np.float32)
        assert (np.abs(cut) <= np.abs(inside)).all()
        nearest = _rounded(inside, dtype).astype(np.float32)
        assert ((cut == nearest) | (np.abs(cut) < np.abs(nearest))).all()


def test_a_sum_rounded_to_odd_is_rounded_once() -> None:
    """Half way between two numbers of bfloat16, and a little more: up, not to even."""
    half = np.array([1.0 + 2.0**-8], dtype=np.float64)
    more = _made_odd(half, np.array([2.0**-60]), np.int64)
    single = _single_rounded_to_odd(more)
    assert float(single.astype(ml_dtypes.bfloat16)[0]) == 1.0 + 2.0**-7
    assert float(half.astype(np.float32).astype(ml_dtypes.bfloat16)[0]) == 1.0
