"""Operators on a real GPU: torch's own CUDA kernels run, and what they touch is recorded."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import torch

from racegate.interpose.device.graphs import Graphs
from racegate.interpose.device.session import Session
from racegate.interpose.gpu.calls import GpuCalls
from racegate.interpose.gpu.forward import ForwardLibrary
from racegate.interpose.kernels import indexing
from racegate.interpose.kernels.aliases import Tensor, bytes_of, tensors_in
from racegate.interpose.kernels.operators import Operator, describe, device_operators
from racegate.order.ranges import Ranges, merged

_NO_NUMBER = "Expected a value of type 'Tensor' for argument"


# torch's own body makes a number on the device of the base and calls the other operator with it,
# which no kernel in Python can be given: torch stops at an assertion before it is called.
_POWERS = {"aten::pow.Scalar": "Tensor_Tensor", "aten::pow.Scalar_out": "Tensor_Tensor_out"}


class NumberCalls(threading.local):
    """Calls torch's kernels with the Python numbers that torch makes of its wrapped ones.

    A kernel called by itself takes none in the place of a tensor. Called by its name it does, if
    torch's Python interface would; then it arrives here again, with torch's leave. Where it would
    not, the number becomes a tensor of no dimensions on the host.
    """

    def __init__(self) -> None:
        self._is_allowed = False

    def call(
        self,
        operator: Operator,
        original: Any,
        keyset: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Runs the kernel `original` of the operator."""
        if operator.name in _POWERS:
            return _power_of_number(_POWERS[operator.name], *args, **kwargs)
        if self._is_allowed or not _has_number(operator, args):
            return original.call_boxed(keyset, *args, **kwargs)
        self._is_allowed = True
        try:
            with torch._C._AutoDispatchBelowAutograd():
                return operator.overload(*args, **kwargs)
        except RuntimeError as error:
            if _NO_NUMBER not in str(error):
                raise
        finally:
            self._is_allowed = False
        return original.call_boxed(keyset, *_numbers_as_tensors(operator, args), **kwargs)


class GpuKernels:
    """Stands in front of torch's CUDA kernels for the life of the process."""

    def __init__(
        self, session: Session, library: ForwardLibrary, graphs: Graphs, calls: GpuCalls
    ) -> None:
        self._session = session
        self._library = library
        self._graphs = graphs
        self._calls = calls
        self._number_calls = NumberCalls()
        self._registrations = torch.library.Library("aten", "IMPL")

        self.allocating: dict[int, Callable[..., Any]] = {}
        self.direct: dict[int, Operator] = {}  # all go through the dispatcher, to torch's kernels

    def run(self, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Through the dispatcher, which comes here."""
        return operator.overload(*args, **kwargs)

    def copy(self, to: Tensor, source: Tensor, non_blocking: Any = 0) -> Tensor:
        """Likewise."""
        return torch.ops.aten.copy_.default(to, source, non_blocking)

    def register(self) -> None:
        """Every operator that the virtual device computes itself is told of before it runs."""
        names = ("aten::empty.memory_format", "aten::empty_strided")
        allocating = {name: torch.library.get_kernel(name, "CUDA") for name in names}
        item = describe("aten::_local_scalar_dense")
        for operator in (*device_operators(), item):
            original = torch.library.get_kernel(operator.name, "CUDA")
            self._register(operator.name, self._told(operator, original))
        for name, original in allocating.items():
            self._register(name, self._allocating(original))
        self._register("aten::copy_", self._copy(describe("aten::copy_")))

    def _register(self, name: str, function: Callable[..., Any]) -> None:
        with warnings.catch_warnings():  # torch 2.11 warns although it was told to override
            warnings.simplefilter("ignore")
            self._registrations.impl(name, function, "CUDA", with_keyset=True, allow_override=True)

    def fetch(self, tensor: Tensor) -> Tensor:
        """The values as the current stream sees them. The program gains no edge by it."""
        if not tensor.is_cuda:
            return tensor
        with self._session.own():
            values = tensor.detach().cpu()
        self._calls.take_waited()
        return values

    def _told(self, operator: Operator, original: Any) -> Callable[..., Any]:
        def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
            def launch() -> Any:
                return self._launch(operator, original, keyset, args, kwargs)

            if self._session.is_own or self._session.is_bare:
                return launch()
            return self._tell(operator, args, kwargs, launch)

        return kernel

    def _tell(
        self,
        operator: Operator,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        launch: Callable[[], Any],
    ) -> Any:
        """Records one operator of the program on the current stream, and launches it."""
        session = self._session
        session.drain()
        stream = torch._C._cuda_getCurrentRawStream(0)
        capture = self._library.capture_of(stream) if self._graphs.capturing else 0
        reads, writes = self._footprint(operator, args, kwargs)
        kind = "item" if operator.short == "_local_scalar_dense" else operator.short
        self._calls.take_waited()
        if capture or session.queue.is_eager:  # what it makes is known when it was launched
            result = launch()
            writes = merged([*writes, *_made(session, result, args, kwargs)])
            if not self._graphs.add(capture, kind, stream, reads, writes, _nothing):
                session.issue(kind, stream, reads, writes, None)
        else:
            results: list[Any] = []
            session.issue(kind, stream, reads, writes, lambda: results.append(launch()))
            session.queue.issued()
            result = results[0]
        for waited in dict.fromkeys(self._calls.take_waited()):
            session.wait_stream(waited)
        return result

    def _launch(
        self,
        operator: Operator,
        original: Any,
        keyset: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """torch's own kernel. What it does inside is this operator's."""
        self._library.inside(1)
        try:
            with self._session.own():
                return self._number_calls.call(operator, original, keyset, args, kwargs)
        finally:
            self._library.inside(-1)

    # ---- bytes

    def _footprint(
        self, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Ranges, Ranges]:
        """(bytes read, bytes written) of the arguments."""
        session = self._session
        reads: list[tuple[int, int]] = []
        writes: list[tuple[int, int]] = []
        host: list[tuple[int, int]] = []
        exact = self._picked(operator, args)
        for key, value in (*enumerate(args), *kwargs.items()):
            is_written = key in operator.writes or key in operator.writes_named
            for tensor in tensors_in(value):
                if tensor.is_cuda:
                    ranges = exact.get(key) if isinstance(key, int) else None
                    ranges = bytes_of(session, tensor) if ranges is None else ranges
                    (writes if is_written else reads).extend(ranges)
                elif session.spans.pinned and session.spans.find(tensor.data_ptr()) is not None:
                    host.extend(bytes_of(session, tensor))
        if host:  # a CPU scalar or index of a CUDA operator is read by the host, at the call
            session.host_access(f"host read by {operator.short}", merged(host), ())
        return merged(reads), merged(writes)

    def _picked(self, operator: Operator, args: tuple[Any, ...]) -> dict[int, Ranges]:
        """What indices pick, by position. They are fetched, which a capture does not allow."""
        session = self._session
        if not operator.is_indexed or not session.is_recording:
            return {}
        if self._graphs.capturing:
            session.not_seen["index operators taken as a whole (while a graph is captured)"] += 1
            return {}
        fetched = tuple(self._fetched_indices(arg) for arg in args[1:])
        return indexing.touched(session, operator, (args[0], *fetched))

    def _fetched_indices(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value if value.is_floating_point() or value.is_complex() else self.fetch(value)
        if isinstance(value, (list, tuple)):
            return [self._fetched_indices(item) for item in value]
        return value

    # ---- operators with a life of their own

    def _allocating(self, original: Any) -> Callable[..., Any]:
        """Allocations keep torch's kernel; whose memory it is from now on is noted."""

        def empty(keyset: Any, *args: Any, **kwargs: Any) -> Any:
            tensor = original.call_boxed(keyset, *args, **kwargs)
            session = self._session
            size = tensor.untyped_storage().nbytes()
            if size:
                session.handed_out(tensor.data_ptr(), size, session.stack())
            return tensor

        return empty

    def _copy(self, operator: Operator) -> Callable[..., Any]:
        """On one device it is a kernel; else torch's own copy runs down to the runtime."""
        native = torch.library.get_kernel("aten::copy_", "CUDA")
        told = self._told(operator, native)

        def copy(keyset: Any, to: Tensor, source: Tensor, non_blocking: Any = 0) -> Tensor:
            if to.is_cuda and source.is_cuda:
                return told(keyset, to, source, non_blocking)
            return native.call_boxed(keyset, to, source, non_blocking)

        return copy


def _power_of_number(overload: str, base: Any, exponent: Tensor, **kwargs: Any) -> Tensor:
    """A number to the power of a tensor, with a base of no dimensions on the host instead."""
    base = torch.tensor(base, dtype=torch.result_type(base, exponent))
    with torch._C._AutoDispatchBelowAutograd():
        return getattr(torch.ops.aten.pow, overload)(base, exponent, **kwargs)


def _has_number(operator: Operator, args: tuple[Any, ...]) -> bool:
    """Whether a Python number stands where the schema has a tensor."""
    return any(_stands_for_tensor(operator, args))


def _numbers_as_tensors(operator: Operator, args: tuple[Any, ...]) -> list[Any]:
    stands = _stands_for_tensor(operator, args)
    return [torch.tensor(v) if is_number else v for v, is_number in zip(args, stands, strict=True)]


def _stands_for_tensor(operator: Operator, args: tuple[Any, ...]) -> list[bool]:
    """Per argument, whether it is a Python number in the place of a tensor."""
    arguments = operator.overload._schema.arguments
    return [
        isinstance(value, (int, float, complex)) and str(argument.type) == "Tensor"
        for value, argument in zip(args, arguments, strict=False)
    ]


def _made(
    session: Session, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[tuple[int, int]]:
    """Bytes of the results on the device that were no arguments."""
    given = {id(tensor) for value in (*args, *kwargs.values()) for tensor in tensors_in(value)}
    return [
        pair
        for tensor in tensors_in(result)
        if id(tensor) not in given and tensor.is_cuda and tensor.layout is torch.strided
        for pair in bytes_of(session, tensor)
    ]


def _nothing() -> None:
    """It was launched already."""
