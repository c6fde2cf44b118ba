"""Starts programs on the virtual device and reads what came of them.

One process imports torch and stands up the device; it forks for each run, so that a search over
many schedules imports torch once. Each run has a process of its own.
"""

from __future__ import annotations

import os
import select
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from racegate.interpose.build import build_library, find_toolkit
from racegate.interpose.errors import BadInput, ExitCode
from racegate.interpose.outcome import Ending, Job, Outcome, Plan

ANSWER = struct.Struct("<q")  # the device's answers: a process, then its exit code


@dataclass(frozen=True, slots=True)
class Program:
    """A script, or `-m` and a module, with its arguments. timeout_s: 0 for none."""

    argv: tuple[str, ...]
    timeout_s: float = 0.0


def checked_program(argv: tuple[str, ...], *, timeout_s: float = 0.0) -> Program:
    """Raises BadInput if there is no such script."""
    if not argv or argv == ("-m",):
        raise BadInput("no script: python -m racegate.interpose SCRIPT [ARGS]")
    if argv[0] != "-m" and not Path(argv[0]).is_file():
        raise BadInput(f"{argv[0]} does not exist")
    return Program(argv, timeout_s)


class Device:
    """The process that holds the virtual device, and the pipes to it."""

    def __init__(self, process: subprocess.Popen[bytes], jobs: int, answers: int) -> None:
        self._process = process
        self._jobs = jobs
        self._answers = answers

    def run(self, program: Program, plan: Plan, *, is_quiet: bool = False) -> Outcome:
        """One run under one plan. is_quiet: the program's own output is not shown."""
        with tempfile.TemporaryDirectory(prefix="racegate-") as folder:
            result = Path(folder) / "result.json"
            job = Job(argv=program.argv, plan=plan, result=str(result), is_quiet=is_quiet)
            try:
                os.write(self._jobs, msgspec.json.encode(job) + b"\n")
            except BrokenPipeError:
                raise BadInput("the virtual device did not start; its message is above") from None
            code = self._wait(program.timeout_s)
            if code is None:
                text = f"the program did not end within {program.timeout_s:g} s"
                return Outcome(ending=Ending.TIMED_OUT, exit_code=ExitCode.BAD_INPUT, message=text)
            if not result.exists():
                return _lost(code)
            return msgspec.json.decode(result.read_bytes(), type=Outcome)

    def _wait(self, timeout_s: float) -> int | None:
        """Exit code of the run, negative for a signal; None if it had to be ended."""
        pid = self._answer()
        ready, _, _ = select.select([self._answers], [], [], timeout_s or None)
        if ready:
            return self._answer()
        os.kill(pid, signal.SIGKILL)
        self._answer()
        return None

    def _answer(self) -> int:
        answer = os.read(self._answers, ANSWER.size)
        if len(answer) < ANSWER.size:
            raise BadInput("the virtual device did not start; its message is above")
        return int(ANSWER.unpack(answer)[0])


@contextmanager
def open_device() -> Iterator[Device]:
    """Builds the runtime if needed and starts the device. Raises BadInput if that cannot be."""
    library = build_library(find_toolkit())
    job_end, jobs = os.pipe()
    answers, answer_end = os.pipe()
    command = [sys.executable, "-m", "racegate.interpose.child", str(job_end), str(answer_end)]
    ends = (job_end, answer_end)
    process = subprocess.Popen(command, env=_environment(library), pass_fds=ends, process_group=0)
    os.close(job_end)
    os.close(answer_end)
    try:
        yield Device(process, jobs, answers)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    finally:
        os.close(jobs)
        process.wait()
        os.close(answers)


def _lost(code: int) -> Outcome:
    if code == ExitCode.NOT_MODELLED:
        text = "the virtual CUDA runtime ended the run (its message is above)"
        return Outcome(ending=Ending.NOT_MODELLED, exit_code=code, message=text)
    how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
    text = f"the process ended {how} before its script was over; nothing was judged"
    return Outcome(ending=Ending.LOST, exit_code=code, message=text)


def _environment(library: Path) -> dict[str, str]:
    return {
        **os.environ,
        "LD_PRELOAD": str(library),
        "TRITON_INTERPRET": "1",
        "TORCHDYNAMO_DISABLE": "1",  # compiled regions run as the Python they were compiled from
        "CUDA_VISIBLE_DEVICES": "0",
    }
