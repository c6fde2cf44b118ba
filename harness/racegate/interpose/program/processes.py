"""Processes that the program starts. Where somebody leads them (`--gpus`, `--ranks`), those that
are Python have a virtual device as soon as they import torch; else they run without one.
"""

from __future__ import annotations

import _posixsubprocess
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from racegate.interpose.device.library import Library
from racegate.interpose.device.session import Session

FORKED = "processes forked by the program (what they do)"
STARTED = (
    "processes started by the program (nobody watches them; with `--gpus N` they have GPUs too)"
)
# Environment: where a process says hello that the program started; which of all it is; what is
# preloaded in each; which device it stands up.
DOOR, PLACE, PRELOAD = "RACEGATE_DOOR", "RACEGATE_PLACE", "RACEGATE_PRELOAD"
_BEGINS = str(Path(__file__).parent.parent / "started" / "site")
_ENVIRONMENT = 5  # of the arguments of fork_exec
_EVENTS = frozenset({"subprocess.Popen", "os.posix_spawn", "os.spawn", "os.system", "os.exec"})

# What `ctypes.util.find_library` asks, which many packages call when they are imported: it prints
# the linker's cache.
_LOOK_UP = ["/sbin/ldconfig", "-p"]


def preloaded() -> Path:
    """The virtual runtime."""
    return Path(os.environ[PRELOAD].partition(":")[0])


def track_processes(session: Session, library: Library) -> None:
    """From now on. library: the preloaded one, which sees forks that are not Python's too"""
    library.watch_forks()
    session.work.begin()
    os.register_at_fork(after_in_child=session.drain)

    is_led = DOOR in os.environ

    def count() -> None:
        if not session.is_over and not session.off_record.depth:  # a compiler's are no program's
            session.not_seen[STARTED] += 1

    def seen(event: str, args: tuple[Any, ...]) -> None:
        is_joined = is_led and event == "subprocess.Popen"
        if event in _EVENTS and not is_joined and args[1:2] != (_LOOK_UP,):
            count()

    sys.addaudithook(seen)
    start: Any = _posixsubprocess.fork_exec

    def fork_exec(*args: Any) -> int:
        if is_led and not session.off_record.depth:
            given = args[_ENVIRONMENT]
            env = os.environb if given is None else dict(one.split(b"=", 1) for one in given)
            made = [b"=".join(pair) for pair in _led(env).items()]
            args = (*args[:_ENVIRONMENT], made, *args[_ENVIRONMENT + 1 :])
        else:  # multiprocessing's spawn and fork server, not subprocess
            count()
        return int(start(*args))

    _posixsubprocess.fork_exec = fork_exec
    if is_led and hasattr(subprocess, "_fork_exec"):
        subprocess._fork_exec = fork_exec


def _led(environment: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """That of a process which is to come to whoever leads this one."""
    others = environment.get(b"PYTHONPATH", b"")
    path = os.pathsep.encode().join(filter(None, (_BEGINS.encode(), others)))
    names = (DOOR.encode(), PRELOAD.encode())
    own = {name: os.environb[name] for name in names}
    return {**environment, **own, b"LD_PRELOAD": own[names[1]], b"PYTHONPATH": path}


def seen_of_children(library: Library) -> dict[str, int]:
    """What is said of forked processes, for the verdict."""
    forks = library.forks()
    return {FORKED: forks} if forks else {}
