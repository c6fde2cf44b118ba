"""Ranges that a program names for profilers, `record_function` and NVTX, taken down with what it
does inside them.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import torch
from torch.autograd.profiler import record_function
from torch.cuda import nvtx

from racegate.history.recorded.log import RecordedRun
from racegate.interpose.device.session import Session
from racegate.interpose.outcome import Plan


class RunTracer:
    """The log of a run under a plan that names a file for it."""

    def __init__(self, session: Session, path: Path, rank: int | None) -> None:
        self._session = session
        self._path = path
        self._rank = rank
        self._log = session.recorder.keep_log()
        self._own: dict[int, int] = {}  # of a range that is open, its number in NVTX

    def follow_ranges(self) -> None:
        """From now on: for a process of one run, which takes nothing back."""
        enter, leave = record_function.__enter__, record_function.__exit__
        push, pop, mark = nvtx.range_push, nvtx.range_pop, nvtx.mark
        start, stop = nvtx.range_start, nvtx.range_end

        def entering(self: record_function) -> record_function:
            found = enter(self)
            begin(self.name)
            return found

        def leaving(self: record_function, kind: object, error: object, trace: object) -> None:
            end()
            leave(self, kind, error, trace)

        def pushing(message: str) -> object:
            begin(message)
            return push(message)

        def popping() -> object:
            end()
            return pop()

        def marking(message: str) -> object:
            self._mark(message)
            return mark(message)

        def starting(message: str) -> int:
            opened = self._open(message)
            # NVTX without a profiler says 0 for every range.
            self._own[opened] = start(message)
            return opened

        def stopping(opened: int) -> None:
            found = self._own.pop(opened, None)
            if found is not None:
                self._close(opened)
            stop(opened if found is None else found)

        begin, end = self._begin, self._end
        torch.autograd.profiler.record_function.__enter__ = entering
        torch.autograd.profiler.record_function.__exit__ = leaving
        nvtx.range_push, nvtx.range_pop, nvtx.mark = pushing, popping, marking
        nvtx.range_start, nvtx.range_end = starting, stopping

    def write(self) -> None:
        """A line of the file, with all until now."""
        lanes, steps = self._session.recorder.lanes.all_names(), self._log.steps
        log = msgspec.json.encode(RecordedRun(lanes, tuple(steps), self._rank))
        with self._path.open("ab", buffering=0) as file:
            file.write(log + b"\n")

    def _begin(self, name: str) -> None:
        with self._session.lock:
            self._session.drain()
            self._log.begin(self._session.thread_lane(), str(name))

    def _end(self) -> None:
        with self._session.lock:
            self._session.drain()
            self._log.end(self._session.thread_lane())

    def _open(self, name: str) -> int:
        with self._session.lock:
            self._session.drain()
            return self._log.open(self._session.thread_lane(), str(name))

    def _close(self, opened: int) -> None:
        with self._session.lock:
            self._session.drain()
            self._log.close(self._session.thread_lane(), opened)

    def _mark(self, name: str) -> None:
        with self._session.lock:
            self._session.drain()
            self._log.mark(self._session.thread_lane(), str(name))


def tracer_of(session: Session, plan: Plan) -> RunTracer | None:
    """The log of a run that names a file for it, with the ranges of the program from now on."""
    if not plan.log:
        return None
    tracer = RunTracer(session, Path(plan.log), plan.rank)
    tracer.follow_ranges()
    return tracer
