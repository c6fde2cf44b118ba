"""Every kernel compiles for an H200, whatever the interpreter lets pass; no GPU is needed."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import racegate_kernels
from racegate_kernels.backend import EAGER, Backend, triton_backend

PROGRAM = Path(__file__).with_name("compile_kernels.py")


@pytest.mark.parametrize("dtype", ["int32", "float32", "bfloat16"])
def test_compiles_to_machine_code(dtype: str, tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="has wheels for Linux only")
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    # A cache of its own: what an earlier run has compiled proves nothing.
    env["TRITON_CACHE_DIR"] = str(tmp_path)
    run = subprocess.run(
        [sys.executable, str(PROGRAM), dtype], env=env, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    result = json.loads(run.stdout)
    assert all("cubin" in stages for stages in result["compiled"].values()), result
    if dtype == "int32":
        assert result["launched"] == sorted(field.name for field in dataclasses.fields(Backend))
        assert set(result["compiled"]) == kernels()


def kernels() -> set[str]:
    """All functions of the package that are launched: `_*_kernel` by convention."""
    triton_backend()
    found = set()
    for module in pkgutil.iter_modules(racegate_kernels.__path__, "racegate_kernels."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if name.endswith("_kernel") and value.fn.__module__ == module.name:
                found.add(f"{module.name}.{name}")
    return found


@pytest.mark.parametrize("field", dataclasses.fields(Backend), ids=lambda field: field.name)
def test_launcher_has_the_signature_of_its_twin(field: dataclasses.Field[object]) -> None:
    pytest.importorskip("triton", reason="has wheels for Linux only")
    twin, launcher = getattr(EAGER, field.name), getattr(triton_backend(), field.name)
    assert inspect.signature(launcher) == inspect.signature(twin)


def test_twins_import_without_triton_and_without_torch() -> None:
    program = (
        "import sys; sys.modules['triton'] = sys.modules['torch'] = None\n"
        "from racegate_kernels.backend import EAGER, triton_backend\n"
        "assert EAGER.norm is not None\n"
        "try: triton_backend()\n"
        "except ImportError: print('refused')\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert run.stdout == "refused\n", run.stderr
