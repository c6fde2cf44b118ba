"""Commands of racegate in a process of their own, which ends with whoever started it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from racegate.scenario.untrusted.text import quoted

# `python -m racegate`, command after command. What is read from standard input ends when whoever
# started this is gone, however that went.
PROGRAM = """\
import json, os, runpy, signal, sys, threading
def end_with_parent():
    os.read(0, 1)
    os.killpg(0, signal.SIGKILL)
threading.Thread(target=end_with_parent, daemon=True).start()
codes, commands = json.loads(sys.argv[1])
for command in commands:
    sys.argv = ["racegate", *command]
    try:
        runpy.run_module("racegate", run_name="__main__")
    except SystemExit as end:
        with open(codes, "a") as file:
            print(int(end.code or 0), file=file)
"""
STDERR_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedCommands:
    """What became of commands.

    codes: of those that came to their end, in their order; why: what ended the process before the
    last, or what it said last
    """

    codes: tuple[int, ...]
    why: str


def run_commands(
    commands: Sequence[Sequence[str]],
    *,
    folder: Path,
    place: Path,
    variables: Mapping[str, str] | None = None,
    timeout_s: float,
) -> EndedCommands:
    """One after the other. folder: for files of this; place: where they run; variables: beside
    those of this process; timeout_s: for all of them, 0 is no limit
    """
    codes, errors = folder / "codes", folder / "stderr"
    given = json.dumps([str(codes), commands])
    with errors.open("wb") as stderr:
        process = subprocess.Popen(
            (sys.executable, "-c", PROGRAM, given),
            cwd=place,
            env={**os.environ, **(variables or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            start_new_session=True,
        )
        try:
            process.wait(timeout_s or None)
            how = ""
        except subprocess.TimeoutExpired:
            how = f"has not ended within {timeout_s:g} s"
        finally:
            _end(process)
    said = _last_line(errors)
    text = codes.read_text(encoding="utf-8").split() if codes.exists() else []
    ended = tuple(map(int, text))
    how = how or f"ended with {_ending(process.returncode or max(ended, default=0))}"
    return EndedCommands(codes=ended, why=f"{how}: {said}" if said else how)


def _end(process: subprocess.Popen[bytes]) -> None:
    """With all that it has started in its session."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert process.stdin is not None
    process.stdin.close()


def _ending(code: int) -> str:
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name


def _last_line(file: Path) -> str:
    with file.open("rb") as said:
        said.seek(max(0, file.stat().st_size - STDERR_BYTES))
        lines = said.read().decode(errors="replace").strip().splitlines()
    return quoted(lines[-1]) if lines else ""
