"""Processes that the program starts: they run as they would, without a virtual device."""

from __future__ import annotations

import _posixsubprocess
import os
import sys
from collections.abc import Callable
from typing import Any

from racegate.interpose.device.session import Session

FORKED = "processes forked by the program (what they do)"
STARTED = "processes started by the program (they have no GPU, and nobody watches them)"
_EVENTS = frozenset({"subprocess.Popen", "os.posix_spawn", "os.spawn", "os.system", "os.exec"})

# What `ctypes.util.find_library` asks, which many packages call when they are imported: it prints
# the linker's cache.
_LOOK_UP = ["/sbin/ldconfig", "-p"]


def track_processes(session: Session, hush: Callable[[], None]) -> None:
    """From now on. hush: the native runtime asks nothing of a forked child's Python any more."""

    def before_fork() -> None:
        session.not_seen[FORKED] += 1

    def after_fork() -> None:
        session.leave()
        hush()

    os.register_at_fork(before=before_fork, after_in_child=after_fork)

    def seen(event: str, args: tuple[Any, ...]) -> None:
        if event in _EVENTS and not session.is_over and args[1:2] != (_LOOK_UP,):
            session.not_seen[STARTED] += 1

    sys.addaudithook(seen)
    start: Any = _posixsubprocess.fork_exec

    def fork_exec(*args: Any) -> int:  # multiprocessing's spawn and fork server, not subprocess
        if not session.is_over:
            session.not_seen[STARTED] += 1
        return int(start(*args))

    _posixsubprocess.fork_exec = fork_exec
