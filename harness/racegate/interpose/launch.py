"""Starts a program on the virtual device in its own process, and reads what came of it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import msgspec

from racegate.interpose.build import build_library, find_toolkit
from racegate.interpose.errors import BadInput, ExitCode
from racegate.interpose.outcome import Ending, Outcome, Plan


@dataclass(frozen=True, slots=True)
class Program:
    """A script, or `-m` and a module, with its arguments. timeout_s: 0 for none."""

    argv: tuple[str, ...]
    library: Path
    timeout_s: float = 0.0


def prepare(argv: tuple[str, ...], *, timeout_s: float = 0.0) -> Program:
    """Raises BadInput if the script does not exist or this machine cannot run it."""
    if not argv or argv == ("-m",):
        raise BadInput("no script: python -m racegate.interpose SCRIPT [ARGS]")
    if argv[0] != "-m" and not Path(argv[0]).is_file():
        raise BadInput(f"{argv[0]} does not exist")
    return Program(argv, build_library(find_toolkit()), timeout_s)


def run_once(program: Program, plan: Plan, *, is_quiet: bool = False) -> Outcome:
    """One run under one plan. is_quiet: the program's output is not shown."""
    with tempfile.TemporaryDirectory(prefix="racegate-") as folder:
        plan_path, result_path = Path(folder) / "plan.json", Path(folder) / "result.json"
        plan_path.write_bytes(msgspec.json.encode(plan))
        paths = (str(plan_path), str(result_path))
        command = [sys.executable, "-m", "racegate.interpose.child", *paths, *program.argv]
        stream = subprocess.DEVNULL if is_quiet else None
        try:
            done = subprocess.run(
                command,
                env=_environment(program),
                stdout=stream,
                stderr=stream,
                timeout=program.timeout_s or None,
                check=False,
            )
        except subprocess.TimeoutExpired:
            text = f"the program did not end within {program.timeout_s:g} s"
            return Outcome(ending=Ending.TIMED_OUT, exit_code=ExitCode.BAD_INPUT, message=text)
        if not result_path.exists():
            return _lost(done.returncode)
        return msgspec.json.decode(result_path.read_bytes(), type=Outcome)


def _lost(code: int) -> Outcome:
    if code == ExitCode.NOT_MODELLED:
        text = "the virtual CUDA runtime ended the run (its message is above)"
        return Outcome(ending=Ending.NOT_MODELLED, exit_code=code, message=text)
    how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
    text = f"the process ended {how} before its script was over; nothing was judged"
    return Outcome(ending=Ending.LOST, exit_code=code, message=text)


def _environment(program: Program) -> dict[str, str]:
    return {
        **os.environ,
        "LD_PRELOAD": str(program.library),
        "TRITON_INTERPRET": "1",
        "CUDA_VISIBLE_DEVICES": "0",
    }
