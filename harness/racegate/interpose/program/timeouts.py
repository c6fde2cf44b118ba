"""Where a program stood when its time was over: its stacks, written on a signal."""

from __future__ import annotations

import faulthandler
import os
import re
import signal
from pathlib import Path

_STACKS = "stacks.txt"
_FRAMES_MAX = 3  # per thread
_FRAME = re.compile(r'File "(.+)", line (\d+) in (.+)')
_OURS = str(Path(__file__).parent.parent)
_STANDARD = str(Path(os.__file__).parent)
STACKS_SIGNAL = signal.SIGRTMAX - 1  # one that programs leave alone


def write_stacks_on_signal(folder: Path) -> None:
    """In the program's process: on STACKS_SIGNAL its stacks are written. faulthandler's own timer
    would hang a child that the program forks.
    """
    file = os.open(folder / _STACKS, os.O_WRONLY | os.O_CREAT)
    faulthandler.register(STACKS_SIGNAL, file=file)


def where_it_stood(folder: Path) -> str:
    """One line for each thread, of the program's own frames; empty if nothing was written."""
    stacks = folder / _STACKS
    text = stacks.read_text(errors="replace") if stacks.exists() else ""
    lines = []
    for thread in re.split(r"\n\s*\n", text):
        frames = [
            f"{file.rpartition('/')[2]}:{line} in {function}"
            for file, line, function in _FRAME.findall(thread)
            if _is_program_file(file)
        ]
        if frames:
            lines.append(f"\n  it stood at {', from '.join(frames[:_FRAMES_MAX])}")
    return "".join(lines)


def _is_program_file(file: str) -> bool:
    is_standard = file.startswith(_STANDARD) and "site-packages" not in file
    return not is_standard and not file.startswith((_OURS, "<"))
