"""Ranges that a program names for profilers, `record_function` and NVTX, taken down with what it
does inside them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import torch
from torch.autograd.profiler import record_function
from torch.cuda import nvtx

from racegate.interpose.device.session import Session
from racegate.order.log import RecordedLog, StepLog


class RunLog:
    """The log of a run under a plan that names a file for it."""

    def __init__(self, session: Session, path: Path) -> None:
        self._session = session
        self._path = path
        self._log = session.recorder.log = StepLog()

    def follow_ranges(self) -> None:
        """From now on: for a process of one run, which takes nothing back."""
        enter, leave = record_function.__enter__, record_function.__exit__
        push, pop, mark = nvtx.range_push, nvtx.range_pop, nvtx.mark

        def entering(self: Any) -> Any:
            found = enter(self)
            begin(self.name)
            return found

        def leaving(self: Any, *error: Any) -> Any:
            end()
            return leave(self, *error)

        def pushing(message: str) -> Any:
            begin(message)
            return push(message)

        def popping() -> Any:
            end()
            return pop()

        def marking(message: str) -> Any:
            self._mark(message)
            return mark(message)

        begin, end = self._begin, self._end
        torch.autograd.profiler.record_function.__enter__ = entering
        torch.autograd.profiler.record_function.__exit__ = leaving
        nvtx.range_push, nvtx.range_pop, nvtx.mark = pushing, popping, marking

    def write(self) -> None:
        """The file, with all until now."""
        log = RecordedLog(tuple(self._session.recorder.lanes.names), tuple(self._log.steps))
        self._path.write_bytes(msgspec.json.encode(log))

    def _begin(self, name: str) -> None:
        with self._session.lock:
            self._session.drain()
            self._log.begin(self._session.thread_lane(), str(name))

    def _end(self) -> None:
        with self._session.lock:
            self._session.drain()
            self._log.end(self._session.thread_lane())

    def _mark(self, name: str) -> None:
        with self._session.lock:
            self._session.drain()
            self._log.mark(self._session.thread_lane(), str(name))
