"""The gate judges with the order in Python: it needs no torch and no compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from repository import ROOT

# Ends the process where it would import torch, load what was compiled, or start another program.
PROGRAM = """\
import os, sys
def look(event, details):
    is_foreign = (
        event == "import" and details[0].partition(".")[0] in ("torch", "triton", "ziglang")
        or event == "ctypes.dlopen" and "racegate" in str(details[0])
        or event in ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.system")
    )
    if is_foreign:
        print(event, details, file=sys.stderr, flush=True)
        os._exit(99)
sys.addaudithook(look)
import runpy
runpy.run_module("racegate", run_name="__main__")
"""


def test_the_gate_imports_no_torch_and_starts_no_compiler(tmp_path: Path) -> None:
    witnesses = str(ROOT / "scenarios" / "witnesses")
    words = ("gate", "--must-fail", witnesses, "-k", "two-row-cycle", "--workers", "1")
    paths = os.pathsep.join(str(ROOT / each) for each in ("harness", "reference", "kernels"))
    variables = {"PATH": str(tmp_path), "HOME": str(tmp_path), "PYTHONPATH": paths}
    done = subprocess.run(
        (sys.executable, "-c", PROGRAM, *words),
        cwd=ROOT,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "PROVED: 1 scenario" in done.stdout
