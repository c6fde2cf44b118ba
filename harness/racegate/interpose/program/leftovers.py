"""No process of a program outlives its run, and none of ours outlives who started it."""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import suppress
from pathlib import Path

_PARENT_DEATH_SIGNAL = 1  # prctl(2)
_CHILD_SUBREAPER = 36


def die_with_parent() -> None:
    """This process is killed when its parent ends, however that ends."""
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


def adopt_orphans() -> None:
    """What descendants leave behind becomes a child of this process, sessions of their own too."""
    ctypes.CDLL(None).prctl(_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_children() -> list[str]:
    """Ends all children of this process and what they leave behind; returns their names."""
    ended = []
    while children := _children(os.getpid()):
        for pid, name in children:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)
            ended.append(name)
    return ended


def _children(parent: int) -> list[tuple[int, str]]:
    """(number, name) of each."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text(errors="replace")
        except OSError:  # it has ended
            continue
        name, _, rest = text.partition("(")[2].rpartition(")")
        if int(rest.split()[1]) == parent:
            found.append((int(path.parent.name), name))
    return found
