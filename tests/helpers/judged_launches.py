"""Launches under Triton's interpreter on the host's memory, judged from inside."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from unittest.mock import patch

from racegate.interpose.kernels.interpreted import lanes
from racegate.interpose.kernels.interpreted.accesses import LaunchRace
from racegate.interpose.kernels.interpreted.bounds import given_memory
from racegate.interpose.kernels.interpreted.language import as_compiled
from racegate.interpose.kernels.interpreted.noting import AccessWatch, uses_atomics
from racegate.interpose.kernels.interpreted.programs import judge_programs, races_beyond

_WARPS = 4  # of a program, where a launch does not say


@dataclass(slots=True)
class LaunchReport:
    """What was found: kernel and what of it, in words; launches: how many there were."""

    found: list[str] = field(default_factory=list)
    launches: int = 0


class WatchedInterpreter:
    """Triton's interpreter, which is watched while `judged` says so."""

    def __init__(self) -> None:
        interpreter: Any = importlib.import_module("triton.runtime.interpreter")
        self._watch = AccessWatch(None, lambda: ((0, 1 << 62),))
        self._watch.watch(interpreter)
        self._report: LaunchReport | None = None
        self._is_by_thread = False
        executor, builder = interpreter.GridExecutor, interpreter.InterpreterBuilder
        plain, barrier = executor.__call__, builder.create_barrier
        self._in_launch: set[int] = set()
        patched = as_compiled(interpreter, self._watch.instructions(), self._in_launch)
        unpatched = interpreter._patch_lang
        interpreter._patch_lang = lambda fn: (unpatched if self._report is None else patched)(fn)
        to_host, back = executor._init_args_hst, executor._restore_args_dev

        def call(executor: Any, *args: Any, **kwargs: Any) -> Any:
            if self._report is None:
                return plain(executor, *args, **kwargs)
            if "EARLY" in executor.arg_names:
                kwargs["EARLY"] = True
            return self._launch(plain, executor, args, kwargs)

        executor.__call__ = call
        executor._init_args_hst = lambda one, args, kwargs: (
            to_host(one, args, kwargs) if self._report is None else (list(args), kwargs)
        )
        executor._restore_args_dev = lambda one, *args: (
            back(one, *args) if self._report is None else None
        )
        builder.create_barrier = lambda one: None if self._is_by_thread else barrier(one)

    @contextmanager
    def judged(self) -> Iterator[LaunchReport]:
        """What is launched inside is judged."""
        self._report = report = LaunchReport()
        try:
            yield report
        finally:
            self._report = None

    @contextmanager
    def without_barriers(self) -> Iterator[LaunchReport]:
        """What is launched inside has no barriers, and the threads of a warp are in no order."""
        self._is_by_thread = True
        try:
            with self.judged() as report:
                yield report
        finally:
            self._is_by_thread = False

    def _launch(self, plain: Any, executor: Any, args: Any, kwargs: Any) -> Any:
        report, watch, name = self._report, self._watch, executor.fn.__name__
        assert report is not None
        may_turn = uses_atomics(executor.fn)
        bounds = given_memory((*args, *kwargs.values()))
        watch.begin([], is_judged=True, may_turn=may_turn, bounds=bounds)
        self._in_launch.clear()
        try:
            result = plain(executor, *args, **kwargs)
        finally:
            watch.end()
        report.launches += 1
        phases = watch.phases(name, ())
        is_any = bool(phases.touches or phases.waits)  # a grid may have no program at all
        is_early = bool(phases.before_wait()) or not phases.waits_before_trigger()
        if kwargs.get("EARLY") and is_any and is_early:
            report.found.append(f"{name}: touches memory, or triggers, before it has waited")
        races: list[LaunchRace] = races_beyond(watch.beyond)
        touches, warps = watch.take(), kwargs.get("num_warps") or _WARPS
        with patch.object(lanes, "WARP", 1 if self._is_by_thread else lanes.WARP):
            threads = lanes.judge_lanes(touches, warps * (32 if self._is_by_thread else 1))
        races += [*judge_programs(touches, warps).races, *threads.races]
        if self._is_by_thread and threads.untold:
            report.found.append(f"{name}: lines of different threads")
        report.found += [
            f"{name}: {race.lack.name} at {race.first.place[:2]} and {race.second.place[:2]}"
            for race in races
        ]
        return result


@cache
def watched_interpreter() -> WatchedInterpreter:
    """The one of this process."""
    return WatchedInterpreter()
