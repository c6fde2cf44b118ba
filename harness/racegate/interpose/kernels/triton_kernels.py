"""Triton kernels under Triton's interpreter: on aliases, with the bytes they load and store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch

from racegate.history.finding import Frame
from racegate.interpose.device.graphs import Graphs
from racegate.interpose.device.library import Library
from racegate.interpose.device.session import Session
from racegate.interpose.kernels.aliases import NoMemory, alias_of, bytes_of, tensors_in
from racegate.interpose.kernels.interpreted.accesses import (
    LaunchJudged,
    LaunchRace,
    Noted,
    ProgramAccess,
    ranges_of,
)
from racegate.interpose.kernels.interpreted.bounds import OutsideError, given_memory
from racegate.interpose.kernels.interpreted.dependent import DependentLaunches
from racegate.interpose.kernels.interpreted.lanes import judge_lanes
from racegate.interpose.kernels.interpreted.language import (
    as_compiled,
    do_once,
    is_word_of_kernel,
    prefer_numbers,
    settle_grid,
    type_floats,
)
from racegate.interpose.kernels.interpreted.libdevice import compute_extern
from racegate.interpose.kernels.interpreted.noting import AccessWatch, uses_atomics
from racegate.interpose.kernels.interpreted.programs import judge_programs, races_beyond
from racegate.interpose.kernels.interpreted.reductions import combine_slices
from racegate.interpose.kernels.interpreted.unwritten import (
    LINES_MAX,
    UnwrittenAccess,
    UnwrittenMemory,
    by_line,
    depends,
    race_of_line,
    unwritten_in,
)
from racegate.interpose.kernels.kept.calls import Call
from racegate.interpose.kernels.kept.effects import LaunchEffect
from racegate.interpose.kernels.kept.memo import Memo
from racegate.interpose.kernels.narrow_floats import compute_narrow_floats
from racegate.interpose.native.streams import current_stream
from racegate.order.ranges import Ranges, merged

# Of the interpreter, or of ours; a TypeError says that arguments do not fit, as when compiled.
_FAILURES = (
    NoMemory, RuntimeError, ValueError, LookupError, AttributeError, AssertionError,
    ArithmeticError,
)  # fmt: skip

# What a verdict on the programs of a launch does not cover.
BY_ATOMICS = "lines of launches that atomic operations order in the two orders that were run"
NOT_TURNED = "launches with atomic operations that were run in one order of their programs"
MAY_BE_ORDERED = "lines of launches that a volatile load, or too many atomic operations, may order"
BY_VALUE = "lines of launches by which values of memory that nothing has written come to others"
MAY_MEET = "lines of a program whose order is a matter of how it is compiled"
LANES_SKIPPED = "accesses of a program that were not compared lane by lane (too many)"
_WARPS = 4  # of a program, where a launch does not say

_set_eval_frame = torch._C._dynamo.eval_frame.set_eval_frame


class _Kernel(NamedTuple):
    """What is launched. place: where its function stands; may_turn: its programs may do something
    else in another order
    """

    name: str
    place: Frame
    may_turn: bool


class _Given(NamedTuple):
    """Memory of a launch's arguments. bounds: None if it is not known"""

    bounds: Ranges | None
    unwritten: UnwrittenMemory


class _Launch(NamedTuple):
    """A launch that was made. run: makes it again; writes: what it has written"""

    kernel: _Kernel
    run: Callable[[], Any]
    given: _Given
    writes: Ranges


class TritonKernels:
    """Launches of interpreted kernels become operations on the current stream.

    refuse: called with the name of what cannot be computed, must not return
    memo: of launches that need not run again, for who makes many runs
    on_launch: told what came of each launch that was judged
    """

    def __init__(
        self,
        session: Session,
        library: Library,
        graphs: Graphs,
        refuse: Callable[[str], None],
        memo: Memo | None = None,
        on_launch: Callable[[LaunchJudged], None] | None = None,
    ) -> None:
        self._session = session
        self._library = library
        self._graphs = graphs
        self._refuse = refuse
        self._notes = AccessWatch(None if memo is None else memo.note_store, self._memory)
        self._turning_fails: tuple[type[Exception], ...] = _FAILURES
        self._memo = memo
        self._on_launch = on_launch
        self._dependent = DependentLaunches()

    def patch(self, interpreter: ModuleType) -> None:
        """interpreter: triton.runtime.interpreter, just imported."""
        builder: Any = interpreter.InterpreterBuilder
        executor: Any = interpreter.GridExecutor
        compute_narrow_floats(interpreter, self._refuse)
        compute_extern(interpreter)
        combine_slices(interpreter)
        type_floats(interpreter)
        prefer_numbers(builder)
        self._notes.watch(interpreter)
        self._turning_fails = (interpreter.InterpreterError, *_FAILURES)
        plain = executor.__call__
        kernels = self

        def call(executor: Any, *args: Any, **kwargs: Any) -> Any:
            kernel = _kernel_of(executor)
            args, kwargs = settle_grid(executor, args, kwargs)
            known = kernels._call(executor, args, kwargs)
            run = partial(interpreted, executor)
            traced = _set_eval_frame(None)  # a compiler that is on does not read what follows
            try:
                return kernels.launch(kernel, args, kwargs, run, call=known)
            except (interpreter.InterpreterError, *_FAILURES) as error:
                if is_word_of_kernel(error.__cause__):
                    raise
                if isinstance(error.__cause__, OutsideError):
                    raise error.__cause__ from None  # as the program is told on a GPU
                kernels._refuse(
                    f"the Triton kernel {kernel.name} (its interpreter ended with {error})"
                )
                raise
            finally:
                _set_eval_frame(traced)

        in_launch: set[int] = set()

        def interpreted(executor: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
            in_launch.clear()
            with np.errstate(all="ignore"):  # compiled kernels have nobody to warn
                return plain(executor, *args, **kwargs)

        executor.__call__ = call
        interpreter._patch_lang = as_compiled(  # type: ignore[attr-defined]
            interpreter, self._notes.instructions(), in_launch
        )
        do_once(interpreter)
        executor._init_args_hst = lambda _, args, kwargs: self._to_cpu(args, kwargs)
        executor._restore_args_dev = lambda *args: None

    def fix_autotuners(self, autotuner: ModuleType) -> None:
        """autotuner: triton.runtime.autotuner. Of the configurations left after pruning the first
        is taken: the times of an interpreter say nothing.
        """
        session = self._session

        def take_all_as_equal(tuner: Any, *args: Any, **kwargs: Any) -> float:
            session.not_seen["Triton configurations that were not tried (the first is taken)"] += 1
            return 0.0

        autotuner.Autotuner._bench = take_all_as_equal

    def refuse_gluon(self, runtime: ModuleType) -> None:
        """runtime: triton.experimental.gluon._runtime, whose kernels no interpreter knows."""

        def run(function: Any, *args: Any, **kwargs: Any) -> None:
            name = function.__name__
            self._refuse(f"the Gluon kernel {name} (Triton's interpreter does not know Gluon)")

        runtime.GluonJITFunction.run = run

    def launch(
        self,
        kernel: _Kernel,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        run: Callable[[Sequence[Any], Mapping[str, Any]], Any],
        *,
        call: Call | None = None,
    ) -> Any:
        """One launch on the current stream. Its bytes are known when it ran.

        run: is given args and kwargs; call: by which the memo knows it
        """
        (session := self._session).drain()
        stream = current_stream()
        capture = self._library.capture_of(stream) if self._graphs.capturing else 0
        kind = f"kernel {kernel.name}"
        if session.queue.runs_now(kind) and not capture:
            with session.own():
                if call is not None:
                    self._to_cpu(args, kwargs)  # opens the pages that it may touch
                again = partial(run, args, kwargs)
                memory = self._given((*args, *kwargs.values()))
                begins_early = bool(kwargs.get("launch_pdl"))
                if begins_early:  # who overlaps another launch is judged with it each time
                    call = None
                result, reads, writes, kept = self._run(kernel, again, call, memory)
                known = races_beyond(self._notes.beyond)
                is_plain = not (begins_early or self._notes.has_triggered())
                known += self._follow(kernel, stream, begins_early=begins_early, is_plain=is_plain)
                launch = _Launch(kernel, again, memory, writes)
                is_clean = self._judge(launch, known, warps=kwargs.get("num_warps") or _WARPS)
                if is_clean and is_plain and kept and call and self._memo:
                    self._memo.vouch(call, kept)
            session.issue(kind, stream, reads, writes, None)
            self._dependent.issued(stream, self._last_on(stream))
            return result

        tensors = [t for value in (*args, *kwargs.values()) for t in tensors_in(value)]
        whole = merged(r for tensor in tensors for r in bytes_of(session, tensor))
        del tensors
        with session.own():  # no tensor of the program: its memory may be used again
            given = self._to_cpu(args, kwargs)

        def work() -> None:
            for low, high in whole:
                session.guards.drop(low, high)
            memo, has = self._memo, session.spans.has
            with session.own():
                if memo is None or call is None or memo.find(call, reaches=has) is None:
                    run(*given)

        if capture:
            session.not_seen["captured Triton kernels (whole tensors, as written)"] += 1
        if not self._graphs.add(capture, kind, stream, (), whole, work):
            session.issue(kind, stream, (), whole, work)
        return None

    def _call(self, executor: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call | None:
        """By which the memo knows a launch."""
        return None if self._memo is None else self._memo.call(executor, args, kwargs)

    def _run(
        self, kernel: _Kernel, run: Callable[[], Any], call: Call | None, given: _Given
    ) -> tuple[Any, Ranges, Ranges, LaunchEffect | None]:
        memo, notes = self._memo if call is not None else None, self._notes
        is_judged = self._session.is_recording
        if memo is not None and call is not None:
            unwritten, has = given.unwritten.bytes, self._session.spans.has
            footprint = memo.find(call, unwritten, reaches=has, is_recording=is_judged)
            if footprint is not None:
                notes.take()
                return None, *footprint, None
            memo.begin()
        noted: list[Noted] = []
        notes.begin(
            noted,
            is_judged=is_judged,
            may_turn=kernel.may_turn,
            bounds=given.bounds,
            unwritten=given.unwritten.bytes,
        )
        has_ended = False
        try:
            result = run()
            has_ended = True
        finally:
            notes.end()
            if not has_ended:
                self._tell(kernel, races_beyond(notes.beyond))
        reads, writes = ranges_of(noted, is_write=False), ranges_of(noted, is_write=True)
        kept = None
        if memo is not None and call is not None:
            loaded = ranges_of(notes.atomics, is_write=True)
            kept = memo.end(call, reads, merged((*reads, *loaded)), writes)
        return result, reads, writes, kept

    def _follow(
        self, kernel: _Kernel, stream: int, *, begins_early: bool, is_plain: bool
    ) -> tuple[LaunchRace, ...]:
        """What a launch races with of those that may still run when it begins."""
        launch = self._notes.phases(kernel.name, () if is_plain else self._session.stack())
        number = self._last_on(stream)
        return self._dependent.judge(stream, number, launch, begins_early=begins_early)

    def _memory(self) -> Ranges:
        """All that the device reaches."""
        return merged((span.base, span.end) for span in self._session.spans)

    def _given(self, values: Sequence[Any]) -> _Given:
        """The memory of a launch's arguments."""
        session, bounds = self._session, given_memory(values)
        if bounds is None or not session.is_recording or self._on_launch is None:
            return _Given(bounds, UnwrittenMemory())
        sites, shadow = session.allocation_sites, session.recorder.memory
        return _Given(bounds, unwritten_in(bounds, sites, shadow))

    def _last_on(self, stream: int) -> int:
        """The number of what this thread gave a stream last."""
        session, lanes = self._session, self._session.recorder.lanes
        return lanes.number(lanes.of(session.thread_lane(), session.stream_lane(stream)))

    def _judge(self, launch: _Launch, known: Sequence[LaunchRace], *, warps: int) -> bool:
        """Whether the launch that has just run was judged, and nothing is to be said of it: no two
        accesses race in it. known: what was found in it before
        """
        kernel, loads = launch.kernel, () if self._notes.beyond else self._notes.unwritten
        touches, not_seen = self._notes.take(), self._session.not_seen
        if not touches or self._on_launch is None:
            return False
        found, lanes = judge_programs(touches, warps), judge_lanes(touches, warps)
        races, untold = [*known, *found.races, *lanes.races], found.untold
        if kernel.may_turn and found.ordered:
            try:
                again = self._notes.turned(launch.run, launch.writes)
                turned = judge_programs(again, warps)
            except self._turning_fails:
                not_seen[NOT_TURNED] += 1
            else:
                races, untold = [*races, *turned.races], untold + turned.untold
                not_seen[BY_ATOMICS] += found.ordered
        uninitialised, by_value = self._try_unwritten(launch, loads, touches)
        races += uninitialised
        for what, count in (
            (BY_VALUE, by_value), (MAY_BE_ORDERED, untold), (MAY_MEET, lanes.untold),
            (LANES_SKIPPED, lanes.skipped),
        ):  # fmt: skip
            if count:
                not_seen[what] += count
        programs = len({touch.program for touch in touches})
        untold += lanes.untold + by_value
        self._tell(kernel, races, programs=programs, untold=untold)
        return not (races or untold or lanes.skipped or found.ordered)

    def _try_unwritten(
        self,
        launch: _Launch,
        loads: Sequence[UnwrittenAccess],
        touches: Sequence[ProgramAccess],
    ) -> tuple[list[LaunchRace], int]:
        """What depends on memory that nothing has written, and how many lines that load it may be
        right all the same.
        """
        races, untold = [], 0
        for number, line in enumerate(by_line(loads, touches).values()):
            try:
                race, is_used = None, number >= LINES_MAX
                if not is_used:
                    bounds = launch.given.bounds or ()
                    tried = self._notes.varied(launch.run, launch.writes, line, bounds)
                    race = race_of_line(tried, touches, launch.given.unwritten)
                    is_used = depends(tried)
            except self._turning_fails:
                is_used = True
            if race is not None:
                races.append(race)
            elif is_used:
                untold += 1
        return races, untold

    def _tell(
        self, kernel: _Kernel, races: Sequence[LaunchRace], *, programs: int = 0, untold: int = 0
    ) -> None:
        """programs: that touched memory in a launch that came to its end"""
        if (races or programs) and self._on_launch is not None:
            judged = LaunchJudged(kernel.name, kernel.place, programs, tuple(races), untold)
            self._on_launch(judged)

    def _to_cpu(self, args: Any, kwargs: Any) -> tuple[list[Any], dict[str, Any]]:
        def alias(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                return alias_of(self._session, value) if value.is_cuda else value
            if isinstance(value, tuple):
                return tuple(alias(item) for item in value)
            return value

        return [alias(value) for value in args], {key: alias(v) for key, v in kwargs.items()}


def _kernel_of(executor: Any) -> _Kernel:
    code = getattr(executor.fn, "__code__", None)
    place = ("", 0, "") if code is None else (code.co_filename, code.co_firstlineno, code.co_name)
    name = getattr(executor.fn, "__name__", "?")
    return _Kernel(name, place, uses_atomics(executor.fn))
