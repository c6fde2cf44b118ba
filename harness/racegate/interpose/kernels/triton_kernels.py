"""Triton kernels under Triton's interpreter: on aliases, with the bytes they load and store."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from types import FrameType, ModuleType
from typing import Any

import numpy as np
import torch

from racegate.history.finding import Frame
from racegate.interpose.device.frames import is_compiled_file, is_program_file
from racegate.interpose.device.graphs import Graphs
from racegate.interpose.device.library import Library
from racegate.interpose.device.session import Session
from racegate.interpose.kernels.aliases import NoMemory, alias_of, bytes_of, tensors_in
from racegate.interpose.kernels.interpreted.arguments import type_floats
from racegate.interpose.kernels.interpreted.libdevice import (
    compute_extern,
    is_libdevice,
    is_of_libdevice,
    own_functions,
)
from racegate.interpose.kernels.interpreted.programs import (
    MAY_BE_ORDERED,
    ProgramAccess,
    ProgramRace,
    judge_programs,
)
from racegate.interpose.kernels.interpreted.reductions import combine_slices
from racegate.interpose.kernels.memo import Call, Memo, call_of
from racegate.interpose.kernels.narrow_floats import compute_narrow_floats
from racegate.interpose.native.streams import current_stream
from racegate.order.ranges import Ranges, merged

# Of the interpreter, or of ours; a TypeError says that arguments do not fit, as when compiled.
_FAILURES = (
    NoMemory, RuntimeError, ValueError, LookupError, AttributeError, AssertionError,
    ArithmeticError,
)  # fmt: skip

Noted = tuple[Any, int, bool]  # addresses, bytes of each, whether they are written

_set_eval_frame = torch._C._dynamo.eval_frame.set_eval_frame


class TritonKernels:
    """Launches of interpreted kernels become operations on the current stream.

    refuse: called with the name of what cannot be computed, must not return
    memo: of launches that need not run again, for who makes many runs
    on_race: told of two programs of a launch that nothing orders, with the name of the kernel
    """

    def __init__(
        self,
        session: Session,
        library: Library,
        graphs: Graphs,
        refuse: Callable[[str], None],
        memo: Memo | None = None,
        on_race: Callable[[str, ProgramRace], None] | None = None,
    ) -> None:
        self._session = session
        self._library = library
        self._graphs = graphs
        self._refuse = refuse
        self._noting: list[tuple[Any, int, bool]] | None = None
        self._atomics: list[tuple[Any, int, bool]] = []
        self._touches: list[ProgramAccess] = []
        self._memo = memo
        self._on_race = on_race

    def patch(self, interpreter: ModuleType) -> None:
        """interpreter: triton.runtime.interpreter, just imported."""
        builder: Any = interpreter.InterpreterBuilder
        executor: Any = interpreter.GridExecutor
        compute_narrow_floats(interpreter, self._refuse)
        compute_extern(interpreter)
        combine_slices(interpreter)
        type_floats(interpreter)
        prefer_numbers(builder)
        self.note_accesses(builder)
        plain = executor.__call__
        kernels = self

        def call(executor: Any, *args: Any, **kwargs: Any) -> Any:
            name = getattr(executor.fn, "__name__", "?")
            args, kwargs = settle_grid(executor, args, kwargs)
            known = call_of(executor, args, kwargs) if kernels._memo is not None else None
            run = partial(interpreted, executor)
            traced = _set_eval_frame(None)  # a compiler that is on does not read what follows
            try:
                return kernels.launch(name, args, kwargs, run, call=known)
            except (interpreter.InterpreterError, *_FAILURES) as error:
                if is_word_of_kernel(error.__cause__):
                    raise
                kernels._refuse(f"the Triton kernel {name} (its interpreter ended with {error})")
                raise
            finally:
                _set_eval_frame(traced)

        def interpreted(executor: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
            with np.errstate(all="ignore"):  # compiled kernels have nobody to warn
                return plain(executor, *args, **kwargs)

        executor.__call__ = call
        interpreter._patch_lang = as_compiled(interpreter)  # type: ignore[attr-defined]
        interpreter.inspect = _Inspect()  # type: ignore[attr-defined]
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

    def note_accesses(self, builder: Any) -> None:
        """builder: the interpreter's. What it loads and stores is noted from now on."""
        self._note_calls(builder, "create_masked_load", mask_at=1, is_write=False)
        self._note_calls(builder, "create_masked_store", mask_at=2, is_write=True)
        self._note_calls(builder, "create_atomic_rmw", mask_at=3, is_write=True, pointer_at=1)
        self._note_calls(builder, "create_atomic_cas", mask_at=None, is_write=True)

    def launch(
        self,
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        run: Callable[[Sequence[Any], Mapping[str, Any]], Any],
        *,
        call: Call | None = None,
    ) -> Any:
        """One launch on the current stream. Its bytes are known when it ran.

        run: is given args and kwargs; call: by which the memo knows it
        """
        session = self._session
        session.drain()
        stream = current_stream()
        capture = self._library.capture_of(stream) if self._graphs.capturing else 0
        kind = f"kernel {name}"
        if session.queue.runs_now(kind) and not capture:
            with session.own():
                if call is not None:
                    self._to_cpu(args, kwargs)  # opens the pages that it may touch
                result, reads, writes = self._run(lambda: run(args, kwargs), call)
                self._judge(name)
            session.issue(kind, stream, reads, writes, None)
            return result

        tensors = [t for value in (*args, *kwargs.values()) for t in tensors_in(value)]
        whole = merged(r for tensor in tensors for r in bytes_of(session, tensor))
        del tensors
        with session.own():  # no tensor of the program: its memory may be used again
            given = self._to_cpu(args, kwargs)

        def work() -> None:
            for low, high in whole:
                session.guards.drop(low, high)
            with session.own():
                if self._memo is None or call is None or self._memo.find(call) is None:
                    run(*given)

        if capture:
            session.not_seen["captured Triton kernels (whole tensors, as written)"] += 1
        if not self._graphs.add(capture, kind, stream, (), whole, work):
            session.issue(kind, stream, (), whole, work)
        return None

    def _run(self, run: Callable[[], Any], call: Call | None) -> tuple[Any, Ranges, Ranges]:
        memo = self._memo if call is not None else None
        if memo is not None and call is not None:
            if (footprint := memo.find(call)) is not None:
                return None, *footprint
            memo.begin()
        noted: list[tuple[Any, int, bool]] = []
        self._noting, self._atomics, self._touches = noted, [], []
        try:
            result = run()
        finally:
            self._noting = None
        reads, writes = ranges_of(noted, is_write=False), ranges_of(noted, is_write=True)
        if memo is not None and call is not None:
            loaded = ranges_of(self._atomics, is_write=True)
            memo.end(call, reads, merged((*reads, *loaded)), writes)
        return result, reads, writes

    def _judge(self, name: str) -> None:
        """Whether two programs of the launch race that has just run."""
        races, handed = judge_programs(self._touches)
        self._touches = []
        if handed:
            self._session.not_seen[MAY_BE_ORDERED] += handed
        if self._on_race is not None:
            for race in races:
                self._on_race(name, race)

    def _to_cpu(self, args: Any, kwargs: Any) -> tuple[list[Any], dict[str, Any]]:
        def alias(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                return alias_of(self._session, value) if value.is_cuda else value
            if isinstance(value, tuple):
                return tuple(alias(item) for item in value)
            return value

        return [alias(value) for value in args], {key: alias(v) for key, v in kwargs.items()}

    def _note_calls(
        self, builder: Any, name: str, *, mask_at: int | None, is_write: bool, pointer_at: int = 0
    ) -> None:
        """The builder's method also notes its addresses. mask_at: position of the mask."""
        plain = getattr(builder, name)

        def method(builder: Any, *args: Any, **kwargs: Any) -> Any:
            if self._noting is not None:
                mask = args[mask_at] if mask_at is not None else None
                noted = noted_addresses(args[pointer_at], mask, is_write=is_write)
                self._noting.append(noted)
                if self._session.is_recording:
                    self._touches.append(touch_of(builder, name, noted, args, len(self._touches)))
                if is_write and self._memo is not None:
                    self._memo.note_store(lambda: ranges_of([noted], is_write=True))
                    if name.startswith("create_atomic"):
                        self._atomics.append(noted)
            return plain(builder, *args, **kwargs)

        setattr(builder, name, method)


def as_compiled(interpreter: Any) -> Callable[[Any], Any]:
    """What compiled kernels may do and interpreted ones may not: returns what takes the place of
    `_patch_lang`.

    The interpreter puts its own operations into the language's module for each launch: a kernel
    whose module has given one a name of its own (`exp = tl.exp`) is made to look it up there. What
    a loop counts can be converted, and NVIDIA's own functions compute.
    """
    plain, language = interpreter._patch_lang, interpreter.tl
    libdevice = own_functions(interpreter)

    class Index(int):
        def to(self, dtype: Any) -> Any:
            return language.full((), int(self), dtype)

    def counted(*ends: Any, **_: Any) -> Iterator[Index]:
        return map(Index, range(*map(int, ends)))

    def looked_up(name: str) -> Callable[..., Any]:
        return lambda *args, **kwargs: getattr(language, name)(*args, **kwargs)

    def patch(fn: Any) -> Any:
        for alias, value in list(fn.__globals__.items()):
            if language.core.is_builtin(value) and hasattr(language, value.__name__):
                fn.__globals__[alias] = looked_up(value.__name__)
            elif is_libdevice(value):
                fn.__globals__[alias] = libdevice
            elif is_of_libdevice(value):
                fn.__globals__[alias] = getattr(libdevice, value.__name__)
        scope = plain(fn)
        module = sys.modules.get(fn.__module__)
        if scope is not None:
            scope.set_attr(language.extra, "libdevice", libdevice)
            scope.set_attr(language.extra.cuda, "libdevice", libdevice)
            for owner in filter(None, (language, module)):
                scope.set_attr(owner, "range", counted)
        return scope

    return patch


def is_word_of_kernel(error: BaseException | None) -> bool:
    """Whether the kernel's own assertion failed, and not one inside the interpreter."""
    if not isinstance(error, AssertionError):
        return False
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return True
    code, folder = trace.tb_frame.f_code, os.path.dirname(sys.modules["triton"].__file__ or "")
    return "assert" in code.co_name or not code.co_filename.startswith(os.path.join(folder, ""))


def prefer_numbers(builder: Any) -> None:
    """The maximum of a number and NaN is the number, as compiled: up to Triton 3.6 it was NaN."""
    builder.create_maxnumf = lambda self, x, y: self.binary_op(x, y, np.fmax)
    builder.create_minnumf = lambda self, x, y: self.binary_op(x, y, np.fmin)


def settle_grid(
    executor: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Asks a grid that is a function for its sizes, and returns the arguments as it leaves them: it
    may exchange some, and the interpreter would ask it when they are no tensors any more.
    """
    if not callable(executor.grid):
        return args, kwargs
    names = inspect.getfullargspec(executor.fn).args
    known = {name: value for name, value in kwargs.items() if name in names}
    named = inspect.getcallargs(executor.fn, *args, **known)
    executor.grid = executor.grid(named)
    return tuple(named[name] for name in names[: len(args)]), {
        **kwargs,
        **{name: named[name] for name in names[len(args) :]},
    }


class _Inspect:
    """The interpreter looks over the whole language at every launch: it has the same members."""

    def __init__(self) -> None:
        self.getmembers: Any = cache(inspect.getmembers)

    def __getattr__(self, name: str) -> Any:
        return getattr(inspect, name)


def noted_addresses(pointers: Any, mask: Any, *, is_write: bool) -> tuple[Any, int, bool]:
    """(addresses, bytes of each, is_write) of an access. pointers, mask: of the interpreter."""
    addresses = np.asarray(pointers.data)
    if mask is not None:
        chosen = np.asarray(mask.data, dtype=bool)  # `&` of the interpreter may give integers
        shape = np.broadcast_shapes(addresses.shape, chosen.shape)
        addresses = np.broadcast_to(addresses, shape)[np.broadcast_to(chosen, shape)]
    size = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
    return np.array(addresses, dtype=np.uint64).reshape(-1), size, is_write


def touch_of(builder: Any, name: str, noted: Noted, args: Sequence[Any], at: int) -> ProgramAccess:
    """What a program does by a method of the builder. args: of it; at: how many before it"""
    addresses, size, is_write = noted
    (x, y, z), (width, height, _) = builder.grid_idx, builder.grid_dim
    is_atomic = name.startswith("create_atomic")
    values = None
    if is_write and not is_atomic:
        mask = np.asarray(args[2].data, dtype=bool)
        values = np.asarray(args[1].data)
        shape = np.broadcast_shapes(np.shape(args[0].data), mask.shape, values.shape)
        values = np.broadcast_to(values, shape)[np.broadcast_to(mask, shape)].reshape(-1)
    return ProgramAccess(
        addresses=addresses,
        size=size,
        program=x + width * (y + height * z),
        at=at,
        place=_place(),
        is_write=is_write,
        is_atomic=is_atomic,
        values=values,
    )


def _place() -> Frame:
    """The line of the kernel, or of a function that it calls, that is being interpreted."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and not _is_of_kernel(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return ("", 0, "")
    return frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname


@cache
def _is_of_kernel(file: str) -> bool:
    return is_program_file(file) or is_compiled_file(file)


def ranges_of(noted: list[tuple[Any, int, bool]], *, is_write: bool) -> Ranges:
    """The bytes of the noted accesses of one kind. noted: (addresses, bytes of each, is_write)."""
    pairs: list[tuple[int, int]] = []
    for addresses, size, writes in noted:
        if writes is not is_write or not addresses.size:
            continue
        starts = np.unique(addresses).astype(np.int64)
        breaks = np.flatnonzero(np.diff(starts) > size)
        firsts = starts[np.concatenate(([0], breaks + 1))]
        lasts = starts[np.concatenate((breaks, [starts.size - 1]))] + size
        pairs.extend(zip(firsts.tolist(), lasts.tolist(), strict=True))
    return merged(pairs)
