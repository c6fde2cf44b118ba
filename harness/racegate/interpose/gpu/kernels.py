"""Operators on a real GPU: torch's own CUDA kernels run, and what they touch is recorded."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from racegate.interpose.device.graphs import Graphs
from racegate.interpose.device.session import Session
from racegate.interpose.gpu.calls import GpuCalls, InsideWork
from racegate.interpose.gpu.forward import ForwardLibrary
from racegate.interpose.kernels import indexing
from racegate.interpose.kernels.aliases import (
    Tensor,
    bytes_of,
    hand_out,
    making,
    resizing,
    stored_parts,
    tensors_in,
)
from racegate.interpose.kernels.operands import COPY_MEMBERS, host_operands
from racegate.interpose.kernels.operators import (
    Operator,
    describe,
    device_operators,
    names_of_all,
)
from racegate.interpose.kernels.waiting import WaitReach
from racegate.interpose.native import factories
from racegate.interpose.native.streams import current_stream
from racegate.order.ranges import Ranges, merged

# Dispatch keys of tensors that are not dense: their operators launch kernels of their own.
OTHER_LAYOUTS = ("SparseCUDA", "SparseCsrCUDA", "NestedTensorCUDA", "QuantizedCUDA")
_NO_NUMBER = "Expected a value of type 'Tensor' for argument"


# torch's own body makes a number on the device of the base and calls the other operator with it,
# which no kernel in Python can be given: torch stops at an assertion before it is called.
_POWERS = {"aten::pow.Scalar": "Tensor_Tensor", "aten::pow.Scalar_out": "Tensor_Tensor_out"}


class _Touched(NamedTuple):
    """Bytes of the device that an operator reads and writes, and of its operands in pinned memory,
    each with whether it is written.
    """

    reads: list[tuple[int, int]]
    writes: list[tuple[int, int]]
    hosts: list[tuple[Ranges, bool]]


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
        names = ("aten::empty.memory_format", "aten::empty_strided", "aten::resize_")
        allocating = {name: torch.library.get_kernel(name, "CUDA") for name in names}
        item = describe("aten::_local_scalar_dense")
        for operator in (*device_operators(), item):
            if operator.name == COPY_MEMBERS:
                continue
            original = torch.library.get_kernel(operator.name, "CUDA")
            self._register(operator.name, self._told(operator, original))
        for key in OTHER_LAYOUTS:
            for name in names_of_all(key):
                original = torch.library.get_kernel(name, key)
                self._register(name, self._told(describe(name), original), key)
        for name, original in allocating.items():
            noted = resizing if name == "aten::resize_" else making
            self._register(name, noted(self._session, original.call_boxed))
        self._register("aten::copy_", self._copy(describe("aten::copy_")))
        members = describe(COPY_MEMBERS)
        self._register(COPY_MEMBERS, self._copy_members(members))

    def _register(self, name: str, function: Callable[..., Any], key: str = "CUDA") -> None:
        with warnings.catch_warnings():  # torch 2.11 warns although it was told to override
            warnings.simplefilter("ignore")
            self._registrations.impl(name, function, key, with_keyset=True, allow_override=True)

    def fetch(self, tensor: Tensor) -> Tensor:
        """The values as the current stream sees them. The program gains no edge by it."""
        if not tensor.is_cuda:
            return tensor
        with self._session.own():
            values = tensor.detach().cpu()
        self._calls.take_inside()
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
        stream = current_stream()
        capture = self._library.capture_of(stream) if self._graphs.capturing else 0
        touched, given = self._footprint(operator, args, kwargs), _given(args, kwargs)
        kind = "item" if operator.short == "_local_scalar_dense" else operator.short
        self._calls.take_inside()
        if capture or session.queue.is_eager:  # what it makes is known when it was launched
            result = launch()
            inside = self._calls.take_inside()
            self._take_hosts(operator, touched, inside.copied, stream, capture)
            touched.writes.extend(_made(session, result, given))
            self._wait(inside, WaitReach.BEFORE)
            reads, writes = merged(touched.reads), merged(touched.writes)
            if not self._graphs.add(capture, kind, stream, reads, writes, _nothing):
                session.issue(kind, stream, reads, writes, None)
        else:
            results: list[Any] = []
            reads, writes = merged(touched.reads), merged(touched.writes)
            session.issue(kind, stream, reads, writes, lambda: results.append(launch()))
            session.queue.issued()
            result, inside = results[0], self._calls.take_inside()
            _made(session, result, given)
        self._wait(inside, WaitReach.ITSELF)
        return result

    def _wait(self, inside: InsideWork, covers: WaitReach) -> None:
        """For the streams of which the host knows this much to be complete."""
        for stream, known in inside.waited.items():
            if known is covers:
                self._session.wait_stream(stream)

    def _take_hosts(
        self, operator: Operator, touched: _Touched, copied: Ranges, stream: int, capture: int
    ) -> None:
        """Operands in pinned memory: the stream copies them to the device, or the host reads and
        writes them at the call.
        """
        session = self._session
        uploaded: list[tuple[int, int]] = []
        at_call: dict[bool, list[tuple[int, int]]] = {False: [], True: []}
        for ranges, is_written in touched.hosts:
            is_copied = any(
                low < end and start < high for low, high in copied for start, end in ranges
            )
            is_uploaded = is_copied and not is_written
            (uploaded if is_uploaded else at_call[is_written]).extend(ranges)
        reads, writes = merged(at_call[False]), merged(at_call[True])
        if reads or writes:
            session.host_access(f"host read by {operator.short}", reads, writes)
        up = merged(uploaded)
        if up and not self._graphs.add(capture, "h2d", stream, up, (), _nothing):
            session.issue("h2d", stream, up, (), None)

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
    ) -> _Touched:
        """Bytes of the arguments."""
        session, touched = self._session, _Touched([], [], [])
        exact = self._picked(operator, args)
        for key, value in (*enumerate(args), *kwargs.items()):
            is_written = key in operator.writes or key in operator.writes_named
            for tensor in tensors_in(value):
                if tensor.is_cuda:
                    ranges = exact.get(key) if isinstance(key, int) else None
                    ranges = self._bytes_of(operator, tensor) if ranges is None else ranges
                    (touched.writes if is_written else touched.reads).extend(ranges)
                elif session.spans.pinned and session.spans.find(tensor.data_ptr()) is not None:
                    touched.hosts.append((bytes_of(session, tensor), is_written))
        return touched

    def _bytes_of(self, operator: Operator, tensor: Tensor) -> Ranges:
        """Also of a sparse tensor; any other that has no bytes of its own ends the run."""
        session = self._session
        if tensor.is_nested:
            self._calls.refuse(f"{operator.name} of a nested tensor")
        with session.own():
            parts = stored_parts(tensor)
        return merged(pair for part in parts for pair in bytes_of(session, part))

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
            if value.is_floating_point() or value.is_complex():
                return value
            with self._session.own():  # of the host, too, as the stream will see it
                there = value.to("cuda")
            return self.fetch(there)
        if isinstance(value, (list, tuple)):
            return [self._fetched_indices(item) for item in value]
        return value

    # ---- operators with a life of their own

    def _copy(self, operator: Operator) -> Callable[..., Any]:
        """On one device it is a kernel; else torch's own copy runs down to the runtime."""
        native = torch.library.get_kernel("aten::copy_", "CUDA")
        told = self._told(operator, native)

        def copy(keyset: Any, to: Tensor, source: Tensor, non_blocking: Any = 0) -> Tensor:
            if to.is_cuda and source.is_cuda:
                return told(keyset, to, source, non_blocking)
            return native.call_boxed(keyset, to, source, non_blocking)

        return copy

    def _copy_members(self, operator: Operator) -> Callable[..., Any]:
        """Between host and device its members are copied one by one, as torch does it."""
        native = torch.library.get_kernel(operator.name, "CUDA")
        told = self._told(operator, native)

        def copy(keyset: Any, to: Any, source: Any, non_blocking: Any = 0) -> Any:
            if not host_operands((to, source), {}):
                return told(keyset, to, source, non_blocking)
            return native.call_boxed(keyset, to, source, non_blocking)

        return copy


def _power_of_number(overload: str, base: Any, exponent: Tensor, **kwargs: Any) -> Tensor:
    """A number to the power of a tensor, with a base of no dimensions on the host instead."""
    base = factories.tensor(base, dtype=torch.result_type(base, exponent), device="cpu")
    with torch._C._AutoDispatchBelowAutograd():
        return getattr(torch.ops.aten.pow, overload)(base, exponent, **kwargs)


def _has_number(operator: Operator, args: tuple[Any, ...]) -> bool:
    """Whether a Python number stands where the schema has a tensor."""
    return any(_stands_for_tensor(operator, args))


def _numbers_as_tensors(operator: Operator, args: tuple[Any, ...]) -> list[Any]:
    stands = _stands_for_tensor(operator, args)
    return [
        factories.tensor(v, device="cpu") if is_number else v
        for v, is_number in zip(args, stands, strict=True)
    ]


def _stands_for_tensor(operator: Operator, args: tuple[Any, ...]) -> list[bool]:
    """Per argument, whether it is a Python number in the place of a tensor."""
    arguments = operator.overload._schema.arguments
    return [
        isinstance(value, (int, float, complex)) and str(argument.type) == "Tensor"
        for value, argument in zip(args, arguments, strict=False)
    ]


class _Given(NamedTuple):
    """Arguments on the device that have elements: their ids, and where their memory begins."""

    ids: set[int]
    addresses: set[int]


def _given(args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Given:
    tensors = [
        tensor
        for value in (*args, *kwargs.values())
        for tensor in tensors_in(value)
        if tensor.is_cuda and not tensor.is_nested and tensor.numel()
    ]
    parts = [part for tensor in tensors for part in stored_parts(tensor)]
    addresses = {part.untyped_storage().data_ptr() for part in parts}
    return _Given(set(map(id, tensors)), addresses)


def _made(session: Session, result: Any, given: _Given) -> list[tuple[int, int]]:
    """Bytes of the results on the device that were no arguments, or had no elements before: whose
    they are from now on is noted.
    """
    made: list[tuple[int, int]] = []
    for tensor in tensors_in(result):
        if id(tensor) in given.ids or not tensor.is_cuda or tensor.is_nested:
            continue
        for part in stored_parts(tensor):
            if part.untyped_storage().data_ptr() not in given.addresses:
                hand_out(session, part.untyped_storage())
            made.extend(bytes_of(session, part))
    return made


def _nothing() -> None:
    """It was launched already."""
