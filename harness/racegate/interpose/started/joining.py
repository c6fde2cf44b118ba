"""A process that the program started takes its seat in the run: it has a virtual device, and what
it does is judged with the others.
"""

from __future__ import annotations

import atexit
import gc
import os
import socket
import sys
from functools import partial
from multiprocessing.util import Finalize, register_after_fork
from types import TracebackType

import msgspec

from racegate.interpose.child import Child
from racegate.interpose.outcome import Ending, Job
from racegate.interpose.program.processes import DOOR, PLACE, preloaded
from racegate.interpose.ranks.group.messages import Down, HelloMessage, RankLink, SeatMessage

_LAST = -1_000  # of what multiprocessing runs at the end of a process


def join_run() -> None:
    """Right after torch was imported. Ends the process if nobody leads the run any more."""
    link = RankLink(_door(), Down)
    rank = os.environ.get("RANK", "")
    link.send(HelloMessage(rank=int(rank) if rank.isdecimal() else None))
    seat = link.receive()
    if not isinstance(seat, SeatMessage):
        raise SystemExit("racegate: the run that this process belongs to is over")
    os.environ[PLACE] = str(seat.place)
    job = msgspec.json.decode(seat.job, type=Job)
    child = Child(preloaded())
    child.join(link, len(list(filter(None, os.environ["CUDA_VISIBLE_DEVICES"].split(",")))))
    child.begin(job)
    failures = _told_failures()
    atexit.register(_finish, child, failures)
    # A process of multiprocessing's fork server ends without that: with what multiprocessing itself
    # runs at the end, which it forgets when the process begins, behind or before this import.
    _finish_behind_work(failures, child)
    register_after_fork(child, partial(_finish_behind_work, failures))


def _door() -> socket.socket:
    end = socket.socket(socket.AF_UNIX)
    try:
        end.connect(f"\0{os.environ[DOOR]}")
    except OSError as error:
        raise SystemExit(f"racegate: nobody leads this run any more: {error}") from None
    return end


def _told_failures() -> list[str]:
    """What ends this process by itself, from now on."""
    failures: list[str] = []
    tell = sys.excepthook

    def told(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        failures.append(f"{kind.__name__}: {error}")
        tell(kind, error, trace)

    sys.excepthook = told
    return failures


def _finish_behind_work(failures: list[str], child: Child) -> None:
    Finalize(None, _finish, (child, failures), exitpriority=_LAST)


def _finish(child: Child, failures: list[str]) -> None:
    """Behind all that the program does at its exit, once."""
    if child.session.is_over:
        return
    gc.collect()  # what nothing holds any more is done with before the end
    ending = Ending.FAILED if failures else Ending.FINISHED
    child.finish(ending, len(failures), next(iter(failures), ""))
    child.installed.library.hush()
