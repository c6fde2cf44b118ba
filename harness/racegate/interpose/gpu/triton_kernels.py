"""Triton on a real GPU: the compiled kernel runs; its bytes are those that Triton's interpreter
loads and stores when it runs the kernel on a copy of its arguments.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import torch

from racegate.interpose.device.graphs import Graphs
from racegate.interpose.device.library import Library
from racegate.interpose.device.session import Session
from racegate.interpose.kernels.aliases import Tensor, bytes_of, tensors_in
from racegate.interpose.kernels.interpreted.accesses import ranges_of
from racegate.interpose.kernels.narrow_floats import compute_narrow_floats
from racegate.interpose.kernels.triton_kernels import TritonKernels
from racegate.interpose.native import factories
from racegate.interpose.native.streams import current_stream
from racegate.order.ranges import Ranges, merged

_FAILURES = (
    RuntimeError,
    TypeError,
    ValueError,
    AttributeError,
    KeyError,
    IndexError,
    NotImplementedError,
    AssertionError,
)


class _OutOfBounds(ValueError):
    """The kernel follows an address that is not in any of its arguments."""


class _Copies:
    """Host copies of the storages of a launch's arguments. (low, high, what to add for the GPU)."""

    def __init__(self) -> None:
        self._storages: dict[int, Any] = {}
        self._moves: list[tuple[int, int, int]] = []

    def of(self, tensor: Tensor) -> Tensor:
        """A CPU tensor over the copy."""
        storage = tensor.untyped_storage()
        address = storage.data_ptr()
        if address not in self._storages:
            flat = factories.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
            copied = flat.cpu().clone().untyped_storage()
            self._storages[address] = copied
            low = copied.data_ptr()
            self._moves.append((low, low + copied.nbytes(), address - low))
        out = factories.empty(0, dtype=tensor.dtype, device="cpu")
        stored = self._storages[address]
        return out.set_(stored, tensor.storage_offset(), tensor.size(), tensor.stride())

    def check(self, addresses: Any, size: int) -> None:
        """Raises _OutOfBounds: the interpreter would follow an address of the GPU."""
        known = np.zeros(addresses.shape, bool)
        for low, high, _ in self._moves:
            known |= (addresses >= low) & (addresses + size <= high)
        if not known.all():
            raise _OutOfBounds

    def on_device(self, ranges: Ranges) -> Ranges:
        """Ranges of the copies, as addresses of the arguments."""
        pairs = []
        for low, high in ranges:
            move = next((add for start, end, add in self._moves if start <= low < end), None)
            if move is not None:
                pairs.append((low + move, high + move))
        return merged(pairs)


class _Checked(list[tuple[Any, int, bool]]):
    """What the interpreter notes, each checked before it is followed."""

    def __init__(self, copies: _Copies) -> None:
        super().__init__()
        self._copies = copies

    def append(self, noted: tuple[Any, int, bool]) -> None:
        self._copies.check(noted[0], noted[1])
        super().append(noted)


class CompiledKernels(TritonKernels):
    """Launches of compiled kernels become operations on the current stream."""

    def __init__(
        self, session: Session, library: Library, graphs: Graphs, take_inside: Callable[[], object]
    ) -> None:
        super().__init__(session, library, graphs, _is_not_computed)
        self._take_inside = take_inside
        self._is_noted = False

    def patch(self, jit: ModuleType) -> None:
        """jit: triton.runtime.jit, just imported."""
        function: Any = jit.JITFunction
        plain = function.run
        kernels = self

        def run(fn: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
            def launch() -> Any:
                return plain(fn, *args, grid=grid, warmup=warmup, **kwargs)

            if warmup or kernels._session.is_own:
                return launch()
            return kernels.launch_compiled(fn, args, kwargs, grid, launch)

        function.run = run

    def launch_compiled(
        self,
        fn: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        grid: Any,
        launch: Callable[[], Any],
    ) -> Any:
        """One launch on the current stream."""
        session = self._session
        session.drain()
        stream = current_stream()
        capture = self._library.capture_of(stream) if self._graphs.capturing else 0
        kind = f"kernel {fn.fn.__name__}"
        reads, writes = self._touched(fn, args, kwargs, grid)
        if self._graphs.add(capture, kind, stream, reads, writes, _nothing):
            return launch()
        results: list[Any] = []

        def own() -> None:
            with session.own():
                results.append(launch())

        session.issue(kind, stream, reads, writes, own)
        session.queue.issued()
        return results[0]

    def _touched(
        self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], grid: Any
    ) -> tuple[Ranges, Ranges]:
        """(bytes loaded, bytes stored)."""
        session = self._session
        if not session.is_recording:
            return (), ()
        why = "while a graph is captured"
        if not self._graphs.capturing:
            try:
                with session.own():
                    touched = self._interpreted(fn, args, kwargs, grid)
            except _FAILURES as error:
                why = f"the interpreter could not run them: {type(error).__name__}"
            else:
                return touched
            finally:
                self._take_inside()
        session.not_seen[f"Triton kernels taken as whole tensors, as written ({why})"] += 1
        tensors = [t for value in (*args, *kwargs.values()) for t in tensors_in(value)]
        return (), merged(r for tensor in tensors for r in bytes_of(session, tensor))

    def _interpreted(
        self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], grid: Any
    ) -> tuple[Ranges, Ranges]:
        interpreter: Any = importlib.import_module("triton.runtime.interpreter")
        if not self._is_noted:
            compute_narrow_floats(interpreter, self._refuse)  # addresses may rest on values
            self._notes.watch(interpreter)
            self._is_noted = True
        copies = _Copies()
        noted = _Checked(copies)
        self._notes.begin(noted, is_judged=False)
        outer: Any = type(fn)
        plain = outer.__call__

        def inner(called: Any, *args: Any, **kwargs: Any) -> Any:
            return interpreter.InterpretedFunction(called.fn).rewrite()(*args, **kwargs)

        outer.__call__ = inner
        try:
            own = interpreter.InterpretedFunction(fn.fn)
            cpu_args = [_copied(copies, value) for value in args]
            cpu_kwargs = {key: _copied(copies, value) for key, value in kwargs.items()}
            own.run(*cpu_args, grid=grid, warmup=False, **cpu_kwargs)
        except interpreter.InterpreterError as error:
            raise RuntimeError(str(error)) from error
        finally:
            outer.__call__ = plain
            self._notes.end()
        return (
            copies.on_device(ranges_of(noted, is_write=False)),
            copies.on_device(ranges_of(noted, is_write=True)),
        )


def _is_not_computed(what: str) -> None:
    """The launch is then taken as whole tensors."""
    raise NotImplementedError(what)


def _copied(copies: _Copies, value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return copies.of(value)
    if isinstance(value, tuple):
        return tuple(_copied(copies, item) for item in value)
    return value


def _nothing() -> None:
    """It was launched into the graph."""
