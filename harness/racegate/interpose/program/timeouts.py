"""Whether a program still moves, and where it stands when its time is over: its stacks, written on
a signal.

A program hangs if it and all that it started stand still: each thread waits without a limit of
time, and none has been woken since. If each waits for another (a lock, a queue, a child process),
nothing can wake them, and a short time is enough to say so. If some wait for bytes from outside,
only a long one is. Where the kernel does not say what threads wait for, or the program handles a
signal that somebody may send it, as a service does that waits to be told to end, nobody is said to
hang.
"""

from __future__ import annotations

import faulthandler
import os
import platform
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import Enum
from pathlib import Path

_STACKS = "stacks.txt"
_FRAMES_MAX = 3  # per thread
_FRAME = re.compile(r'File "(.+)", line (\d+) in (.+)')
_OURS = str(Path(__file__).parent.parent)
_STANDARD = str(Path(os.__file__).parent)
DEADLOCK_S, SILENCE_S = 5.0, 300.0
# Calls that wait, by their number on this machine, and the argument that is their limit of time.
_WAITS = {
    "x86_64": {202: 3, 61: None, 247: None, 0: None, 45: None, 47: None, 43: None, 288: None,
               7: 2, 271: 2, 23: 4, 270: 4, 232: 3, 281: 3},
    "aarch64": {98: 3, 260: None, 95: None, 63: None, 207: None, 212: None, 202: None, 242: None,
                73: 2, 72: 4, 22: 3},
}.get(platform.machine(), {})  # fmt: skip
_INNER = {"x86_64": (202, 61, 247), "aarch64": (98, 260, 95)}.get(platform.machine(), ())
_READ = {"x86_64": 0, "aarch64": 63}.get(platform.machine())
_NO_LIMIT = (0, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)  # no pointer, or -1
# Signals that come from outside, or from a timer: a handler may wake whoever waits.
_SENT = (signal.SIGALRM, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1,
         signal.SIGUSR2)  # fmt: skip
_SENT_MASK = sum(1 << (number - 1) for number in _SENT)
STACKS_SIGNAL = signal.SIGRTMAX - 1  # one that programs leave alone


class TaskWait(Enum):
    """What a thread waits for. ANOTHER: a thread or a process of the same program; OUTSIDE: bytes,
    from whom nobody knows; TIME: it will go on by itself, or runs, or nobody knows.
    """

    ANOTHER = "another"
    OUTSIDE = "outside"
    TIME = "time"


class Stillness:
    """How long a process and all that it started have been still. pid: its number"""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._seen: dict[str, str] = {}
        self._since_s = time.monotonic()

    def is_over(self) -> bool:
        """Whether it hangs, as far as can be told by now. To be asked again and again."""
        now = {task.name: woken(task) for task in _tasks(self._pid)}
        waits = {wait_of(task) for task in _tasks(self._pid)}
        if now != self._seen or not now or TaskWait.TIME in waits:
            self._seen, self._since_s = now, time.monotonic()
            return False
        limit_s = SILENCE_S if TaskWait.OUTSIDE in waits else DEADLOCK_S
        return time.monotonic() - self._since_s > limit_s


def _tasks(pid: int) -> Iterator[Path]:
    """The threads of a process and of its descendants, by their folders in /proc."""
    with suppress(OSError):
        for task in sorted(Path(f"/proc/{pid}/task").iterdir()):
            yield task
            for child in (task / "children").read_text().split():
                yield from _tasks(int(child))


def tasks_below(pid: int) -> Iterator[Path]:
    """Likewise, of its descendants alone."""
    with suppress(OSError):
        for task in sorted(Path(f"/proc/{pid}/task").iterdir()):
            for child in (task / "children").read_text().split():
                yield from _tasks(int(child))


def woken(task: Path) -> str:
    """How often the kernel has switched to and from the thread."""
    with suppress(OSError):
        return "".join(re.findall(r"ctxt_switches:\s*\d+", (task / "status").read_text()))
    return ""


def wait_of(task: Path) -> TaskWait:
    """What a thread waits for. task: its folder in /proc"""
    try:
        status, call = (task / "status").read_text(), (task / "syscall").read_text().split()
    except OSError:
        return TaskWait.TIME
    caught = re.search(r"SigCgt:\s*(\w+)", status)
    is_told = caught is not None and int(caught[1], 16) & _SENT_MASK
    if is_told or "State:\tS" not in status or not call[0].isdigit():
        return TaskWait.TIME
    number, words = int(call[0]), [int(word, 16) for word in call[1:7]]
    limit = _WAITS.get(number, 0)
    is_typed = number == _READ and words[0] == 0  # somebody may be about to type
    if number not in _WAITS or is_typed or (limit is not None and words[limit] not in _NO_LIMIT):
        return TaskWait.TIME
    return TaskWait.ANOTHER if number in _INNER else TaskWait.OUTSIDE


def write_stacks_on_signal(folder: Path, finish: Callable[[], None] | None = None) -> None:
    """In the program's process: on STACKS_SIGNAL its stacks are written. faulthandler's own timer
    would hang a child that the program forks.

    finish: called then in the main thread, if that runs Python or waits in it
    """
    if finish is not None:
        signal.signal(STACKS_SIGNAL, lambda number, frame: finish())
    file = os.open(folder / _STACKS, os.O_WRONLY | os.O_CREAT)
    faulthandler.register(STACKS_SIGNAL, file=file, chain=finish is not None)


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
