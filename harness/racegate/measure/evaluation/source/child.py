"""A child: work in a process forked from this one, within limits of time and memory.

What it breaks it breaks for itself. It says what it comes to line by line, so that what it had
said is known however it ends.
"""

from __future__ import annotations

import ctypes
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, NoReturn

# As <sys/prctl.h> has it: the signal that a process gets when the one that forked it is gone.
PR_SET_PDEATHSIG = 1
_DATA = 5  # the field of statm that RLIMIT_DATA limits, in pages

Say = Callable[[str], None]


class ChildLimits(NamedTuple):
    """cpu_s: computing, at the beginning, and what `more_time` gives later; wall_s: in all
    data_bytes: more memory than there was
    """

    cpu_s: float
    wall_s: float
    data_bytes: int = 6 << 30


class ChildResult(NamedTuple):
    """What a child said. is_timeout: it was ended by a limit of time; status: as of os.waitpid"""

    lines: list[str]
    is_timeout: bool
    status: int
    cpu_s: float


def in_a_child(work: Callable[[Say], None], limits: ChildLimits) -> ChildResult:
    """Does it in a child, and waits for it."""
    here, there = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if not child:
        os.close(here)
        _work(work, there, limits)
    os.close(there)
    is_timeout = True
    try:
        said, is_timeout = _listen(here, limits.wall_s)
    finally:
        os.close(here)
        if is_timeout:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        _, status, used = os.wait4(child, 0)
    ended_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    return ChildResult(
        lines=said.decode().splitlines(),
        is_timeout=is_timeout or ended_by == signal.SIGXCPU,
        status=status,
        cpu_s=used.ru_utime + used.ru_stime,
    )


def _listen(pipe: int, wall_s: float) -> tuple[bytes, bool]:
    """All that is said until the end, and whether time was up before."""
    said = b""
    until = time.monotonic() + wall_s
    while (left := until - time.monotonic()) > 0:
        if select.select([pipe], [], [], left)[0]:
            more = os.read(pipe, 1 << 16)
            if not more:
                return said, False
            said += more
    return said, True


def _work(work: Callable[[Say], None], pipe: int, limits: ChildLimits) -> NoReturn:
    """In the child: never returns into what the parent was doing."""
    code = 1
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGXCPU, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nothing, number)
        used = int(Path("/proc/self/statm").read_text().split()[_DATA]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_DATA, (used + limits.data_bytes, resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        more_time(limits.cpu_s)
        work(lambda line: _say(pipe, line))
        code = 0
    finally:
        os._exit(code)


def _say(pipe: int, line: str) -> None:
    os.write(pipe, line.replace("\n", " ").encode() + b"\n")


def more_time(cpu_s: float) -> None:
    """In a child: from now on it may compute for so long."""
    until = int(time.process_time() + cpu_s) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (until, resource.RLIM_INFINITY))
