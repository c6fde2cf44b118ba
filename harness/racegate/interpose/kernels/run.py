"""Kernels: every CUDA operator is computed by its CPU kernel on aliases of the same bytes.

They are registered with torch's dispatcher at the CUDA key, so any thread of the program reaches
them, backward passes included, and composite operators arrive in parts. An operator without a CPU
kernel ends the run with its name.
"""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch.cuda import _gpu_trace

from racegate.interpose.device.graphs import Graphs
from racegate.interpose.device.library import Library
from racegate.interpose.device.session import Session
from racegate.interpose.kernels import indexing, randomness
from racegate.interpose.kernels.aliases import (
    Alias,
    NoMemory,
    Tensor,
    alias_of,
    bytes_of,
    find_alias,
    making,
    new_tensor,
    on_gpu_of,
    plainly_or,
    resizing,
    tensors_in,
)
from racegate.interpose.kernels.binding import PLAIN, TENSORS, Bound, bind
from racegate.interpose.kernels.later import grow_outputs, shape_only, stage
from racegate.interpose.kernels.operands import COPY_MEMBERS, HostUse, host_operands
from racegate.interpose.kernels.operators import (
    Operator,
    describe,
    device_operators,
    native_kernel,
)
from racegate.interpose.kernels.shapes import Shapes
from racegate.interpose.kernels.twins import NoTwinError
from racegate.interpose.kernels.waiting import WaitReach
from racegate.interpose.native.library import Operators, Ran, new_run
from racegate.interpose.native.streams import current_stream
from racegate.order.ranges import Ranges, merged
from racegate.order.recorder import Stack

_NOTHING: dict[int, Ranges] = {}
# Torch has other words for what is wrong with a program's arguments.
_OWN_FAULTS = (NoMemory, AttributeError, KeyError, AssertionError, NameError)
_unseen = torch._C._DisableTorchDispatch  # the device's own operators take no way through modes


class Kernels:
    """Runs operators for a session. Registered for the life of the process.

    direct: by the id of its overload, what `run` runs: for callers that know that the first
        argument is on the device
    allocating: by the id of its overload, what makes new memory, for those that know that it is to
        be on the device
    shapes: of results that are known before they are computed
    """

    def __init__(
        self, session: Session, library: Library, graphs: Graphs, refuse: Callable[[str], None]
    ) -> None:
        self._session = session
        self._library = library
        self._graphs = graphs
        self._refuse = refuse
        self._rehearsal = library.rehearsal
        self._hosts = HostUse(session, library, self)
        self._registrations = torch.library.Library("aten", "IMPL")
        self._native_copy = native_kernel("aten::copy_", "CUDA")
        self._fill = native_kernel("aten::copy_", "CPU")
        self._copying = describe("aten::copy_")
        self._run_known = new_run(
            Operators(
                tensor_types=TENSORS,
                plain_types=PLAIN,
                item_sizes=_item_sizes(),
                aliases=session.spans.aliases,
                find_alias=partial(find_alias, session),
                empty=new_tensor,
                make=self._make,
            )
        )
        self.direct: dict[int, Operator] = {}
        self.allocating: dict[int, Callable[..., Any]] = {}
        self.shapes = Shapes()

    def register(self) -> None:
        """Takes the place of torch's CUDA kernels."""
        with warnings.catch_warnings():  # older releases tell of each, once
            warnings.simplefilter("ignore", UserWarning)
            self._register_all()

    def _register_all(self) -> None:
        for operator in device_operators():
            if operator.name == COPY_MEMBERS:
                continue
            kernel = self._kernel(operator)
            self.direct[id(operator.overload)] = operator
            self._register(operator.name, kernel)
        for name in ("aten::empty.memory_format", "aten::empty_strided"):
            site = making(self._session, plainly_or(native_kernel(name, "CUDA")))
            self.allocating[id(describe(name).overload)] = site
            self._register(name, site)
        resized = resizing(self._session, native_kernel("aten::resize_", "CUDA"))
        self._register("aten::resize_", resized)
        for name, kernel in (
            ("aten::copy_", self.copy),
            ("aten::_local_scalar_dense", self._item),
            (COPY_MEMBERS, self._hosts.copy_members),
        ):
            self._register(name, self._unless_rehearsed(name, kernel))

    def _register(self, name: str, function: Callable[..., Any]) -> None:
        self._registrations.impl(name, function, "CUDA", allow_override=True)

    def _kernel(self, operator: Operator) -> Callable[..., Any]:
        def kernel(*args: Any, **kwargs: Any) -> Any:
            return self.run(operator, args, kwargs)

        return self._unless_rehearsed(operator.name, kernel)

    def _unless_rehearsed(self, name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
        """Torch's own kernel takes its place while torch's own code is rehearsed."""
        native, rehearsal = native_kernel(name, "CUDA"), self._rehearsal
        self._hosts.natives[name] = native

        def choose(*args: Any, **kwargs: Any) -> Any:
            return (kernel if rehearsal.asked is None else native)(*args, **kwargs)

        return choose

    def run(self, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Computes one operator on the current stream, now or later; returns its results."""
        try:
            if not self._library.has_gpus:
                return self._run(operator, args, kwargs)
            with on_gpu_of(operator.short, *args, *kwargs.values()):
                return self._run(operator, args, kwargs)
        except NotImplementedError as error:
            self._refuse(f"{operator.name} ({_reason(error)})")
            raise
        except RuntimeError as error:
            if "CPU" in str(error):  # words of its kernel, about what CUDA's computes
                self._refuse(f"{operator.name} ({_first_line(error)})")
            raise
        except _OWN_FAULTS as error:  # also where the program would catch it
            self._refuse(f"{operator.name} ({type(error).__name__}: {_first_line(error)})")
            raise

    def _run(self, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        (session := self._session).drain()
        runs_now = session.queue.runs_now(operator.short)
        if operator.plan is not None and runs_now and not self._graphs.capturing:
            ran = self._run_at_once(operator, args, kwargs)
            if ran is not None:
                return ran[0]
        return self._run_any(operator, args, kwargs)

    def _run_at_once(
        self, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Ran | None:
        """Nothing holds it or captures it; None if an argument has to be bound by `bind`."""
        session, is_recording = self._session, self._session.is_recording
        covers = self._waits(operator, args, kwargs)
        exact = _NOTHING
        if operator.is_indexed and is_recording:
            if host_operands(args, kwargs):  # what the host reads is recorded first
                return None
            exact = indexing.touched(session, operator, args)
        ran = self._run_known(operator.plan, args, kwargs, exact, is_recording)
        if ran is None:
            return None
        stream = current_stream()
        if covers is WaitReach.BEFORE:  # what was put on the stream before is complete, not this
            self._wait(stream)
        if not session.is_bare:
            _, reads, writes, fresh = ran
            stack = session.stack()
            for low, high in fresh:
                session.handed_out(low, high - low, stack)
            session.issue(operator.short, stream, reads, writes, None, stack=stack)
        if covers is not None:
            self._has_waited(covers, stream, ran[0])
        return ran

    def _run_any(self, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        session, stream = self._session, current_stream()
        capture = self._library.capture_of(stream) if self._graphs.capturing else 0
        hosts = host_operands(args, kwargs)
        covers = (
            self._hosts.take(operator, args, kwargs, hosts)
            if hosts
            else self._waits(operator, args, kwargs)
        )
        if covers is WaitReach.BEFORE:
            self._wait(stream)
        bound = self._bind(operator, args, kwargs)
        stack = session.stack()
        work = None
        if not capture and session.queue.runs_now(operator.short):
            result = self._to_device(self._call(operator, bound), bound, [], stack)
        else:
            with session.own(), _unseen():
                result, work = self._prepare(operator, bound, stack, covers, capture)
        reads = tuple(bound.reads) if len(bound.reads) < 2 else merged(bound.reads)
        writes = tuple(bound.writes) if len(bound.writes) < 2 else merged(bound.writes)
        if work is not None and self._graphs.add(
            capture, operator.short, stream, reads, writes, work
        ):
            return result
        session.issue(operator.short, stream, reads, writes, work, stack=stack)
        if covers is not None:
            self._has_waited(covers, stream, result)
        return result

    def _bind(self, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Bound:
        bound = bind(self._session, operator, args, kwargs)
        if operator.has_outputs:
            with self._session.own():
                has_grown = grow_outputs(operator, kwargs, bound)
            if has_grown:
                return bind(self._session, operator, args, kwargs)
        return bound

    # ---- waits inside an operator, and operands on the host

    def _waits(
        self, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> WaitReach | None:
        """What the host has waited for when the call returns; None: it does not wait."""
        if operator.is_indexed and indexing.reads_a_size(operator, args):
            return WaitReach.BEFORE
        wait = operator.wait
        if wait is None:
            return None
        covers = wait.covers(args, kwargs)
        if covers is not None and wait.not_seen:
            self._session.not_seen[wait.not_seen] += 1
        return covers

    def _has_waited(self, covers: WaitReach, stream: int, result: Any) -> None:
        if covers is WaitReach.ITSELF:
            self._wait(stream)
        self._session.host_learns(_known_of(result))

    def _wait(self, stream: int) -> None:
        """The host waits inside an operator; torch's own code tells those who trace it."""
        self._session.wait_stream(stream)
        _gpu_trace.StreamSynchronizationCallbacks.fire_callbacks(stream)

    # ---- values

    def _call(self, operator: Operator, bound: Bound) -> Any:
        if operator.is_random:
            return randomness.draw(operator, bound)
        return bound.call(*bound.args, **bound.kwargs)

    def _prepare(
        self,
        operator: Operator,
        bound: Bound,
        stack: Stack,
        covers: WaitReach | None,
        capture: int,
    ) -> tuple[Any, Callable[[], None] | None]:
        """Later: results with the right shapes, and the work that fills them. Random numbers are
        drawn in the order of the calls, or anew at each replay of a graph.
        """
        session = self._session
        fresh: list[Alias] = []
        if (operator.is_random and not capture) or covers is WaitReach.ITSELF:
            session.force_stream(current_stream())
            made = self._call(operator, bound)
            return self._to_device(made, bound, fresh, stack), None
        if covers is WaitReach.BEFORE and operator.is_sized_by_values:
            made = tensors_in(known := self._call(operator, bound))
            result = self._to_device(shape_only(known), bound, fresh, stack)
            return result, partial(self._fill_all, [alias.tensor for alias in fresh], made)
        if operator.gives_value:  # without a wait: torch sees it by shapes and addresses
            return self._call(operator, bound), None
        stage(session, bound)
        bound.args = indexing.spelled_out(operator, bound.args)
        shapes = self.shapes.of(operator, bound)
        result = self._to_device(shapes, bound, fresh, stack)
        targets = [alias.tensor for alias in fresh]
        bound.back.clear()  # holds no tensor of the program: its memory may be used again
        known = {id(tensor) for tensor in tensors_in([bound.args, list(bound.kwargs.values())])}
        is_drawn_anew = operator.is_random and capture
        draw = randomness.captured(operator, bound) if is_drawn_anew else None

        def work() -> None:
            with session.own(), _unseen():
                made = draw() if draw is not None else self._call(operator, bound)
                new = [tensor for tensor in tensors_in(made) if id(tensor) not in known]
                self._fill_all(targets, new)

        return result, work

    def _fill_all(self, targets: list[Tensor], values: list[Tensor]) -> None:
        with self._session.own(), _unseen():
            for target, tensor in zip(targets, values, strict=True):
                self._fill(target, tensor)

    def _to_device(self, value: Any, bound: Bound, fresh: list[Alias], stack: Stack) -> Any:
        """Results on the device; those that are no argument are new, and added to fresh."""
        if isinstance(value, torch.Tensor):
            known = bound.back.get(id(value))
            return known if known is not None else self._new(value, bound, fresh, stack)
        if isinstance(value, (list, tuple)):
            return type(value)(self._to_device(item, bound, fresh, stack) for item in value)
        return value

    def _new(self, value: Tensor, bound: Bound, fresh: list[Alias], stack: Stack) -> Tensor:
        """Of a result; a meta tensor gives its shape only."""
        tensor, ranges = self._make(value)
        fresh.append(find_alias(self._session, tensor))
        if ranges:
            low, high = ranges[0][0], ranges[-1][1]
            self._session.handed_out(low, high - low, stack)
            bound.writes += ranges
        return tensor

    def _make(self, value: Tensor) -> tuple[Tensor, Ranges]:
        """A tensor on the device with a host tensor's values, or a meta tensor's shape."""
        if value.layout is not torch.strided:
            self._refuse(f"an operator whose result is a {value.layout} tensor")
        tensor = new_tensor(tuple(value.size()), value.stride(), value.dtype)
        alias = find_alias(self._session, tensor)
        if alias.ranges and not value.is_meta:
            low, high = alias.ranges[0][0], alias.ranges[-1][1]
            if len(alias.ranges) > 1 or alias.is_complex or value.is_neg():
                self._fill(alias.tensor, value)
            else:  # the same bytes in the same order
                ctypes.memmove(low, value.data_ptr(), high - low)
        return tensor, alias.ranges

    # ---- operators with a life of their own

    def copy(self, to: Tensor, source: Tensor, non_blocking: Any = 0) -> Tensor:
        """Between devices torch's own copy runs, down to the runtime; on one it is a kernel."""
        if to.is_cuda and source.is_cuda and to.device == source.device:
            return self.run(self._copying, (to, source, non_blocking), {})
        return self._native_copy(to, source, non_blocking)

    def _item(self, tensor: Tensor) -> Any:
        """One element is read by the host: a download and a wait."""
        with torch.cuda.device(tensor.device) if self._library.has_gpus else nullcontext():
            return self._download(tensor)

    def _download(self, tensor: Tensor) -> Any:
        session, stream = self._session, current_stream()
        session.issue("item", stream, bytes_of(session, tensor), (), None)
        self._wait(stream)
        with session.own():
            value = alias_of(session, tensor).item()
        session.host_learns(value)
        return value


def _reason(error: NotImplementedError) -> str:
    if isinstance(error, NoTwinError):
        return str(error)
    words = _first_line(error)  # of a missing kernel they are about dispatch keys
    return f"on a CPU {words}" if "not implemented for" in words else "no CPU kernel computes it"


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _known_of(result: Any) -> object:
    """What the host knows of a result: of tensors their shapes."""
    if isinstance(result, (list, tuple)):
        return [_known_of(part) for part in result]
    return tuple(result.shape) if isinstance(result, torch.Tensor) else result


def _item_sizes() -> dict[object, int]:
    """Bytes of an element, of the types whose values are just those."""
    types = {value for value in vars(torch).values() if isinstance(value, torch.dtype)}
    return {
        dtype: dtype.itemsize
        for dtype in types
        if not dtype.is_complex and not str(dtype).startswith(("torch.q", "torch.uint4x"))
    }
