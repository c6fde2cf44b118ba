"""Processes that the program starts: they run as they would, without a virtual device."""

from __future__ import annotations

import _posixsubprocess
import os
import sys
from typing import Any

from racegate.interpose.device.library import Library
from racegate.interpose.device.session import Session

FORKED = "processes forked by the program (what they do)"
STARTED = "processes started by the program (they have no GPU, and nobody watches them)"
_EVENTS = frozenset({"subprocess.Popen", "os.posix_spawn", "os.spawn", "os.system", "os.exec"})

# What `ctypes.util.find_library` asks, which many packages call when they are imported: it prints
# the linker's cache.
_LOOK_UP = ["/sbin/ldconfig", "-p"]


def track_processes(session: Session, library: Library) -> None:
    """From now on. library: the preloaded one, which sees forks that are not Python's too"""
    library.watch_forks()
    session.work.begin()
    os.register_at_fork(after_in_child=session.drain)

    def count() -> None:
        if not session.is_over and not session.off_record.depth:  # a compiler's are no program's
            session.not_seen[STARTED] += 1

    def seen(event: str, args: tuple[Any, ...]) -> None:
        if event in _EVENTS and args[1:2] != (_LOOK_UP,):
            count()

    sys.addaudithook(seen)
    start: Any = _posixsubprocess.fork_exec

    def fork_exec(*args: Any) -> int:  # multiprocessing's spawn and fork server, not subprocess
        count()
        return int(start(*args))

    _posixsubprocess.fork_exec = fork_exec


def seen_of_children(library: Library) -> dict[str, int]:
    """What is said of forked processes, for the verdict."""
    forks = library.forks()
    return {FORKED: forks} if forks else {}
