"""A recorded run of a program or a release, with everything that was recorded."""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec

from racegate.history.recorded.log import RecordedRun
from racegate.interpose.outcome import Plan
from racegate.targets.common.landings import Ran


def recorded_run(run: Callable[[Plan], Ran]) -> tuple[Ran, RecordedRun]:
    """One run in which nothing is held, and its log. The log is in memory, because a program may
    empty the folder of temporary files; of a process that was lost nothing stands in it.
    """
    file = os.memfd_create("racegate-log")
    try:
        outcome = run(Plan(log=f"/proc/{os.getpid()}/fd/{file}"))
        data = os.pread(file, os.fstat(file).st_size, 0)
    finally:
        os.close(file)
    return outcome, msgspec.json.decode(data, type=RecordedRun) if data else RecordedRun((), ())
