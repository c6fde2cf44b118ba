"""Notes what interpreted kernels load and store, launch by launch, and runs a launch's programs in
the opposite order where atomic operations may make a difference.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import CodeType
from typing import Any

from racegate.history.finding import Stack
from racegate.interpose.kernels.interpreted.accesses import (
    BuilderCall,
    Noted,
    ProgramAccess,
    noted_addresses,
    number_of,
    ranges_of,
    touch_of,
)
from racegate.interpose.kernels.interpreted.bounds import OutsideError, outside
from racegate.interpose.kernels.interpreted.dependent import PhasedLaunch
from racegate.interpose.kernels.interpreted.unwritten import (
    LineTried,
    UnwrittenAccess,
    as_they_are,
    other_bytes,
    without,
)
from racegate.order.ranges import Ranges, merged

METHODS = (
    BuilderCall("create_masked_load", 0, 1, is_write=False, volatile=5),
    BuilderCall("create_masked_store", 0, 2, is_write=True, value=1),
    BuilderCall("create_atomic_rmw", 1, 3, is_write=True, semantics=4),
    BuilderCall("create_atomic_cas", 0, None, is_write=True, semantics=3),
)
# What goes through shared memory when compiled, and may bring a barrier.
_BARRIERS_MAYBE = ("create_dot", "create_dot_scaled", "create_gather", "create_histogram")
_SPINS_MAX = 100_000  # equal answers to one atomic operation: somebody else has to act
_SPINS_TURNED_MAX = 2_000


class SpinError(RuntimeError):
    """A program waits for one that the interpreter runs behind it."""


class AccessWatch:
    """Of one launch at a time.

    noted: all accesses, for the footprint; None between launches
    touches: the same by program, where launches are judged; atomics: those that change memory
    unwritten: those of memory that nothing had written
    beyond: those that leave the memory which the launch was given, with their elements out of it
    """

    def __init__(
        self,
        keep_old: Callable[[Callable[[], Ranges]], None] | None,
        memory: Callable[[], Ranges] = tuple,
    ) -> None:
        """keep_old: told of the bytes of each store before it is made; memory: all that the device
        reaches
        """
        self.noted: list[Noted] | None = None
        self.touches: list[ProgramAccess] = []
        self.atomics: list[Noted] = []
        self.beyond: list[ProgramAccess] = []
        self.unwritten: list[UnwrittenAccess] = []
        self._keep = keep_old
        self._memory = memory
        self._bounds: Ranges | None = None
        self._written: Ranges | None = None
        self._unwritten: Ranges = ()
        self._may_turn = False
        self._fails: type[Exception] = SpinError
        self._is_judged = False
        self._undo: list[tuple[int, bytes]] | None = None
        self._is_turned = False
        self._barriers = self._syncs = 0
        self._spin: tuple[object, int] = (None, 0)
        self._builder: Any = None
        self._waits: dict[int, int] = {}
        self._triggers: dict[int, int] = {}

    def begin(
        self,
        noted: list[Noted],
        *,
        is_judged: bool,
        may_turn: bool = False,
        bounds: Ranges | None = None,
        unwritten: Ranges = (),
    ) -> None:
        """A launch begins. may_turn: keep what it overwrites, so that it can run once more; bounds:
        what it was given, None if that is not known; unwritten: bytes of it that nothing has
        written
        """
        self.noted, self.touches, self.atomics, self.beyond = noted, [], [], []
        self.unwritten = []
        self._bounds = self._written = bounds if is_judged else None
        self._unwritten = unwritten
        if unwritten and self._bounds is not None:
            self._written = without(self._bounds, unwritten)
        self._is_judged = is_judged
        self._may_turn = may_turn
        self._undo = [] if (may_turn or unwritten) and is_judged else None
        self._barriers = self._syncs = 0
        self._spin = (None, 0)
        self._waits, self._triggers = {}, {}

    def end(self) -> None:
        self.noted = None

    def take(self) -> list[ProgramAccess]:
        """What the last launch did by program; nothing is left."""
        taken, self.touches, self.beyond = self.touches, [], []
        self._waits, self._triggers = {}, {}
        return taken

    def has_triggered(self) -> bool:
        """Whether the last launch lets another one begin before it has ended."""
        return bool(self._triggers)

    def phases(self, kernel: str, stack: Stack) -> PhasedLaunch:
        """What the last launch did, and when it waited and triggered."""
        return PhasedLaunch(kernel, stack, tuple(self.touches), self._waits, self._triggers)

    def turned(self, run: Callable[[], object], writes: Ranges) -> list[ProgramAccess]:
        """What the same launch does if its last program comes first; memory stays as it is. Raises
        what the interpreter does. writes: what the launch has written
        """
        with self._again(writes):
            self._is_turned = True
            try:
                run()
                return self.take()
            finally:
                self._is_turned = False

    def varied(
        self,
        run: Callable[[], object],
        writes: Ranges,
        loads: Sequence[UnwrittenAccess],
        bounds: Ranges,
    ) -> LineTried:
        """What the same launch does if what it loads there is something else; likewise."""
        loaded = [(load.touch.addresses, load.touch.size, False) for load in loads]
        ranges, plain, is_ended = ranges_of(loaded, is_write=False), as_they_are(writes), False
        with self._again(writes, bounds):
            before = as_they_are(ranges)
            for low, other in other_bytes(loads):
                ctypes.memmove(low, other, len(other))
            filled = as_they_are(ranges)
            try:
                run()
            except self._fails as error:
                is_ended = isinstance(error.__cause__, (OutsideError, SpinError))
                if not is_ended:
                    raise
            stored = as_they_are(ranges_of(self.noted or (), is_write=True))
            varied = stored._replace(is_ended=is_ended or bool(self.beyond))
        return LineTried(loads, before, filled, plain, varied)

    @contextmanager
    def _again(self, writes: Ranges, bounds: Ranges | None = None) -> Iterator[None]:
        """Memory is as it was before the launch, and behind this as the launch has left it."""
        undo = self._undo or []
        changed = merged((*((low, low + len(old)) for low, old in undo), *writes))
        after = as_they_are(changed)
        _put_back(undo)
        self.begin([], is_judged=True, may_turn=True, bounds=bounds)
        try:
            yield
        finally:
            self.noted = None
            _put_back(self._undo or [])
            _put_back([(low, old) for (low, _), old in zip(*after[:2], strict=True)])
            self._undo = undo

    def watch(self, interpreter: Any) -> None:
        """interpreter: triton.runtime.interpreter. Its accesses are noted from now on."""
        builder, self._builder = interpreter.InterpreterBuilder, interpreter.interpreter_builder
        self._fails = interpreter.InterpreterError
        for method in METHODS:
            self._watch_method(builder, method)
        for name in _BARRIERS_MAYBE:
            if hasattr(builder, name):
                self._count(builder, name, barriers=0)
        self._count(builder, "create_barrier", barriers=1)
        self._widen(builder)
        for owner in (interpreter.ReduceOps, interpreter.ScanOps):
            self._count(owner, "apply_impl", barriers=0)
        self._turn_grid(builder)

    def instructions(self) -> dict[str, Callable[..., None]]:
        """By name, those of NVIDIA's that say how far a launch and the one before it have come."""
        return {"gdc_wait": self._note_wait, "gdc_launch_dependents": self._note_trigger}

    def _note_wait(self, **_: Any) -> None:
        self._waits.setdefault(self._program(), len(self.touches))

    def _note_trigger(self, **_: Any) -> None:
        self._triggers.setdefault(self._program(), len(self.touches))

    def _program(self) -> int:
        return number_of(self._builder)

    def _count(self, owner: Any, name: str, *, barriers: int) -> None:
        plain = getattr(owner, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            self._syncs += 1
            self._barriers += barriers
            return plain(*args, **kwargs)

        setattr(owner, name, counted)

    def _widen(self, builder: Any) -> None:
        """Behind a number that became a pointer nobody knows what an access was meant for."""
        plain = builder.create_int_to_ptr

        def widened(*args: Any) -> Any:
            if self._bounds is not None:
                self._bounds = self._memory()
                self._written = without(self._bounds, self._unwritten)
            return plain(*args)

        builder.create_int_to_ptr = widened

    def _turn_grid(self, builder: Any) -> None:
        plain = builder.set_grid_idx

        def set_grid_idx(builder: Any, *at: int) -> None:
            if self._is_turned:
                at = tuple(many - 1 - one for many, one in zip(builder.grid_dim, at, strict=True))
            plain(builder, *at)

        builder.set_grid_idx = set_grid_idx

    def _watch_method(self, builder: Any, method: BuilderCall) -> None:
        plain = getattr(builder, method.name)

        def watched(builder: Any, *args: Any, **kwargs: Any) -> Any:
            if self.noted is None:
                return plain(builder, *args, **kwargs)
            mask = args[method.mask] if method.mask is not None else None
            noted = noted_addresses(args[method.pointer], mask, is_write=method.is_write)
            self.noted.append(noted)
            if self._written is not None:
                self._check_memory(builder, method, noted, args)
            is_atomic = self._is_judged and self._note_touch(builder, method, noted, args)
            if method.is_write:
                self._keep_old(method, noted)
            result = plain(builder, *args, **kwargs)
            if is_atomic:
                self._note_answer(builder, method, noted, result)
            return result

        setattr(builder, method.name, watched)

    def _note_touch(self, builder: Any, method: BuilderCall, noted: Noted, args: Any) -> bool:
        """Whether it is an atomic operation."""
        touch = touch_of(
            builder,
            method,
            noted,
            args,
            at=len(self.touches),
            barriers=self._barriers,
            syncs=self._syncs,
        )
        self.touches.append(touch)
        if touch.is_atomic and touch.elements == 1:
            self._syncs += 1  # its answer goes to all threads
        return touch.is_atomic

    def _check_memory(self, builder: Any, method: BuilderCall, noted: Noted, args: Any) -> None:
        """Notes what lies outside, and what is loaded that nothing has written. Raises OutsideError
        where no memory is, which a GPU would not survive either.
        """
        addresses, size, _ = noted
        is_load = method.value is None
        known = (self._written if is_load else self._bounds) or ()
        beyond = outside(addresses, size, known)
        if beyond is None:
            return
        touch = touch_of(builder, method, noted, args, at=len(self.touches), barriers=0, syncs=0)
        touch = touch._replace(addresses=addresses[beyond], values=None, lanes=None)
        if is_load and self._unwritten:
            if outside(touch.addresses, size, self._bounds or ()) is None:
                self._note_unwritten(touch, args[method.pointer])
                return
            beyond = outside(addresses, size, self._bounds or ())
            touch = touch._replace(addresses=addresses[beyond])
        self.beyond.append(touch)
        if outside(addresses[beyond], size, self._memory()) is not None:
            raise OutsideError("CUDA error: an illegal memory access was encountered")

    def _note_unwritten(self, touch: ProgramAccess, pointers: Any) -> None:
        self.unwritten.append(UnwrittenAccess(touch, pointers.get_element_ty().name))
        if self._undo is not None:
            there = as_they_are(ranges_of([(touch.addresses, touch.size, False)], is_write=False))
            self._undo += [(low, old) for (low, _), old in zip(*there[:2], strict=True)]

    def _keep_old(self, method: BuilderCall, noted: Noted) -> None:
        if self._keep is not None:
            self._keep(lambda: ranges_of([noted], is_write=True))
            if method.semantics is not None:
                self.atomics.append(noted)
        is_kept = self._may_turn or outside(*noted[:2], self._unwritten) is not None
        if self._undo is not None and is_kept:
            ranges = ranges_of([noted], is_write=True)
            self._undo.extend((low, ctypes.string_at(low, high - low)) for low, high in ranges)

    def _note_answer(self, builder: Any, method: BuilderCall, noted: Noted, result: Any) -> None:
        """Raises SpinError if a program asks the same again and again, and is answered so."""
        asked = (builder.grid_idx, method.name, noted[0].tobytes(), result.data.tobytes())
        before, times = self._spin
        self._spin = (asked, times + 1 if asked == before else 0)
        if self._spin[1] > (_SPINS_TURNED_MAX if self._is_turned else _SPINS_MAX):
            raise SpinError(
                f"program {builder.grid_idx} waits for another one, which the interpreter runs "
                "behind it"
            )


def _put_back(contents: list[tuple[int, bytes]]) -> None:
    """The last first: what was kept before the first store to a byte stays."""
    for low, old in reversed(contents):
        ctypes.memmove(low, old, len(old))


def uses_atomics(function: Any) -> bool:
    """Whether a kernel, or a function that it calls, names an atomic operation or asks for a load
    that is volatile.
    """
    seen: set[int] = set()
    waiting = [getattr(function, "fn", function)]
    while waiting:
        one = waiting.pop()
        code = getattr(one, "__code__", None)
        if code is None or id(code) in seen:
            continue
        seen.add(id(code))
        names = _names(code)
        if any(name.startswith("atomic_") or name == "volatile" for name in names):
            return True
        for name in names & one.__globals__.keys():
            called = one.__globals__[name]
            waiting.append(getattr(called, "fn", called))
    return False


def _names(code: CodeType) -> set[str]:
    """That it uses, and of keywords."""
    words = [const for const in code.co_consts if isinstance(const, tuple)]
    keywords = {word for const in words for word in const if isinstance(word, str)}
    return {*code.co_names, *keywords}
