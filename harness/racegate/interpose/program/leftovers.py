"""No process of a program outlives its run, and none of ours outlives who started it."""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
import select
import signal
import sys
import threading
import traceback
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

THREADS_LEFT = "threads that still ran at the end of the program (what they did later)"
_PARENT_DEATH_SIGNAL = 1  # prctl(2)
_CHILD_SUBREAPER = 36


def die_with_parent() -> None:
    """This process is killed when its parent ends, however that ends."""
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


def fork() -> int:
    """As `os.fork`; the child is killed when this process ends."""
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        die_with_parent()
        if os.getppid() != parent:  # it ended before it could be asked for that
            os._exit(1)
    return pid


@contextmanager
def ending_here() -> Iterator[None]:
    """The last work of a process, which ends with it, however that ends: nothing is taken down in
    it. In one that was forked, threads that a destructor would wait for are not there.
    """
    code = 1
    try:
        yield
        code = 0
    finally:
        if code:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def live_with_client(jobs: int) -> None:
    """From here on this process is killed when the one that started it ends; if that has ended
    already, this one ends now. jobs: the read end of a pipe that only the other one writes to
    """
    die_with_parent()
    watched = select.poll()
    watched.register(jobs, 0)  # that nobody writes to it any more is told all the same
    if watched.poll(0):
        sys.exit()


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


def end_as_python_does(own: Collection[int]) -> int:
    """What runs behind the script is judged too: threads that are no daemons, what executors have
    left, `atexit` and `weakref.finalize`, and `__del__` of what nothing holds any more. Returns how
    many threads of the program still run. own: those that are none of its
    """
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        gc.collect()  # before torch takes back, at exit, what runs operators here
        atexit._run_exitfuncs()
    except KeyboardInterrupt:
        pass  # told to stop in its last moments: what was found is told
    return len(sys._current_frames().keys() - set(own)) - 1


def end_leftovers(*, is_told: bool) -> None:
    """Ends what a program has left behind, and names it on standard error."""
    for name in end_children():
        if is_told:
            print(f"racegate: ended {name}, which the program had left behind", file=sys.stderr)
