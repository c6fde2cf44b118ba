"""Kernels: every CUDA operator is computed by its CPU kernel on aliases of the same bytes.

They are registered with torch's dispatcher at the CUDA key, so any thread of the program reaches
them, backward passes included, and composite operators arrive in parts. An operator without a CPU
kernel ends the run with its name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from racegate.interpose.device.graphs import Graphs
from racegate.interpose.device.library import Library
from racegate.interpose.device.session import Session
from racegate.interpose.kernels import indexing
from racegate.interpose.kernels.aliases import Tensor, alias_of, bytes_of, tensors_in
from racegate.interpose.kernels.operators import Operator, describe, device_operators
from racegate.interpose.kernels.randomness import Generators
from racegate.interpose.order.ranges import Ranges, merged

_CPU = torch.device("cpu")


class Kernels:
    """Runs operators for a session. Registered for the life of the process."""

    def __init__(
        self, session: Session, library: Library, graphs: Graphs, refuse: Callable[[str], None]
    ) -> None:
        self._session = session
        self._library = library
        self._graphs = graphs
        self._refuse = refuse
        self._generators = Generators()
        self._registrations = torch.library.Library("aten", "IMPL")

    def register(self) -> None:
        """Takes the place of torch's CUDA kernels."""
        for operator in device_operators():
            self._register(operator.name, self._kernel(operator))
        for name in ("aten::empty.memory_format", "aten::empty_strided"):
            original = torch.library.get_kernel(name, "CUDA")
            self._register(name, self._birth(original), with_keyset=True)
        copy = self._copy(describe("aten::copy_"))
        self._register("aten::copy_", copy, with_keyset=True)
        self._register("aten::_local_scalar_dense", self._item)

    def _register(
        self, name: str, function: Callable[..., Any], *, with_keyset: bool = False
    ) -> None:
        self._registrations.impl(
            name, function, "CUDA", with_keyset=with_keyset, allow_override=True
        )

    def _kernel(self, operator: Operator) -> Callable[..., Any]:
        def kernel(*args: Any, **kwargs: Any) -> Any:
            return self.run(operator, args, kwargs)

        return kernel

    def run(self, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Computes one operator on the current stream, now or later; returns its results."""
        session = self._session
        session.drain()
        stream = torch._C._cuda_getCurrentRawStream(0)
        capture = self._library.capture_of(stream) if self._graphs.capturing else 0
        reads, writes = self._footprint(operator, args, kwargs)
        with session.own():
            if session.queue.is_eager and not capture:
                work = None
                result, fresh = self._compute(operator, args, kwargs)
            else:
                result, fresh, work = self._prepare(operator, args, kwargs)
        writes = merged([*writes, *(r for t in fresh for r in bytes_of(session, t))])
        if work is not None and self._graphs.add(
            capture, operator.short, stream, reads, writes, work
        ):
            return result
        session.issue(operator.short, stream, reads, writes, work)
        if operator.waits or indexing.reads_a_size(operator, args):
            session.wait_stream(stream)
        return result

    # ---- bytes

    def _footprint(
        self, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Ranges, Ranges]:
        session = self._session
        reads: list[tuple[int, int]] = []
        writes: list[tuple[int, int]] = []
        exact = indexing.touched(session, operator, args) if indexing.is_indexed(operator) else {}
        host: list[tuple[int, int]] = []
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
        return tuple(reads), tuple(writes)

    # ---- values

    def _compute(
        self, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, list[Tensor]]:
        """Now: the CPU kernel on aliases, its new results moved to the device."""
        self._grow_outputs(operator, args, kwargs)
        back: dict[int, Tensor] = {}
        result = self._call(operator, self._to_cpu(args, back), self._to_cpu(kwargs, back))
        fresh: list[Tensor] = []
        return self._to_device(result, back, fresh), fresh

    def _prepare(
        self, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, list[Tensor], Callable[[], None] | None]:
        """Later: results with the right shapes, and the work that fills them."""
        session = self._session
        if operator.waits or operator.is_random or indexing.reads_a_size(operator, args):
            session.queue.force(
                session.recorder.lanes.clocks[
                    session.stream_lane(torch._C._cuda_getCurrentRawStream(0))
                ]
            )
            return (*self._compute(operator, args, kwargs), None)
        self._grow_outputs(operator, args, kwargs)
        back: dict[int, Tensor] = {}
        cpu_args, cpu_kwargs = self._to_cpu(args, back), self._to_cpu(kwargs, back)
        cpu_args, cpu_kwargs = self._staged(cpu_args, back), self._staged(cpu_kwargs, back)
        shapes = _shapes(operator, cpu_args, cpu_kwargs, back)
        fresh: list[Tensor] = []
        result = self._to_device(shapes, back, fresh)
        targets = [alias_of(session, tensor) for tensor in fresh]
        known = {id(tensor) for tensor in tensors_in([cpu_args, list(cpu_kwargs.values())])}

        def work() -> None:  # holds no tensor of the program: its memory may be used again
            with session.own():
                made = self._call(operator, cpu_args, cpu_kwargs)
                new = [tensor for tensor in tensors_in(made) if id(tensor) not in known]
                for target, tensor in zip(targets, new, strict=True):
                    target.copy_(tensor)

        return result, fresh, work

    def _call(self, operator: Operator, args: Any, kwargs: Any) -> Any:
        try:
            if operator.is_random:
                return self._generators.call(operator, args, kwargs)
            return operator.overload(*args, **kwargs)
        except NotImplementedError:
            self._refuse(f"{operator.name} (no CPU kernel computes it)")
            raise

    def _grow_outputs(
        self, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """`out=` tensors of no elements take the size of the result, as torch's kernels do."""
        outputs = [kwargs[name] for name in operator.writes_named if name in kwargs]
        empty = [t for value in outputs for t in tensors_in(value) if t.is_cuda and not t.numel()]
        if not empty:
            return
        back: dict[int, Tensor] = {}
        meta_kwargs = _to_meta(self._to_cpu(kwargs, back), {})
        operator.overload(*_to_meta(self._to_cpu(args, back), {}), **meta_kwargs)
        for name in operator.writes_named & kwargs.keys():
            pairs = zip(tensors_in(kwargs[name]), tensors_in(meta_kwargs[name]), strict=True)
            for tensor, shaped in pairs:
                if tensor.size() != shaped.size():
                    tensor.resize_(shaped.size())

    def _to_cpu(self, value: Any, back: dict[int, Tensor]) -> Any:
        """back: the CUDA tensor of each alias, by the alias's id."""
        if isinstance(value, torch.Tensor):
            if not value.is_cuda:
                return value
            alias = alias_of(self._session, value)
            back[id(alias)] = value
            back[-id(alias)] = alias  # keeps the alias, and with it the id
            return alias
        if isinstance(value, (list, tuple)):
            return type(value)(self._to_cpu(item, back) for item in value)
        if isinstance(value, dict):
            return {key: self._to_cpu(item, back) for key, item in value.items()}
        if isinstance(value, torch.device) and value.type == "cuda":
            return _CPU
        if isinstance(value, torch.Generator) and value.device.type == "cuda":
            return self._generators.twin(value)
        return value

    def _to_device(self, value: Any, back: dict[int, Tensor], fresh: list[Tensor]) -> Any:
        """Results on the device; those that are no alias are new, and added to fresh."""
        if isinstance(value, torch.Tensor):
            known = back.get(id(value))
            if known is not None:
                return known
            tensor = torch.empty_strided(
                value.size(), value.stride(), dtype=value.dtype, device="cuda"
            )
            if value.numel() and value.device.type != "meta":
                alias_of(self._session, tensor).copy_(value)
            fresh.append(tensor)
            return tensor
        if isinstance(value, (list, tuple)):
            return type(value)(self._to_device(item, back, fresh) for item in value)
        return value

    def _staged(self, value: Any, back: dict[int, Tensor]) -> Any:
        """Host tensors of a kernel that runs later: their values now.

        A tensor of no dimensions is often a Python number, which its clone would not be.
        """
        if isinstance(value, torch.Tensor):
            is_shared = value.dim() or self._session.spans.find(value.data_ptr()) is not None
            return value.clone() if id(value) not in back and is_shared else value
        if isinstance(value, (list, tuple)):
            return type(value)(self._staged(item, back) for item in value)
        if isinstance(value, dict):
            return {key: self._staged(item, back) for key, item in value.items()}
        return value

    # ---- operators with a life of their own

    def _birth(self, original: Any) -> Callable[..., Any]:
        """Allocations keep torch's kernel; whose memory it is from now on is noted."""

        def empty(keyset: Any, *args: Any, **kwargs: Any) -> Any:
            tensor = original.call_boxed(keyset, *args, **kwargs)
            session = self._session
            size = tensor.untyped_storage().nbytes()
            if size:
                index = session.recorder.events
                session.births.add(tensor.data_ptr(), size, index, session.stack())
            return tensor

        return empty

    def _copy(self, operator: Operator) -> Callable[..., Any]:
        """Between devices torch's own copy runs, down to the runtime; on one it is a kernel."""
        native = torch.library.get_kernel("aten::copy_", "CUDA")

        def copy(keyset: Any, to: Tensor, source: Tensor, non_blocking: Any = 0) -> Tensor:
            if to.is_cuda and source.is_cuda:
                return self.run(operator, (to, source, non_blocking), {})
            return native.call_boxed(keyset, to, source, non_blocking)

        return copy

    def _item(self, tensor: Tensor) -> Any:
        """One element is read by the host: a download and a wait."""
        session = self._session
        stream = torch._C._cuda_getCurrentRawStream(0)
        session.issue("item", stream, bytes_of(session, tensor), (), None)
        session.wait_stream(stream)
        with session.own():
            return alias_of(session, tensor).item()


def _to_meta(value: Any, back: dict[int, Tensor]) -> Any:
    """back: what each meta tensor stands for, by its id."""
    if isinstance(value, torch.Tensor):
        meta = torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device="meta")
        back[id(meta)] = value
        back[-id(meta)] = meta
        return meta
    if isinstance(value, (list, tuple)):
        return type(value)(_to_meta(item, back) for item in value)
    if isinstance(value, dict):
        return {key: _to_meta(item, back) for key, item in value.items()}
    if isinstance(value, torch.device):
        return torch.device("meta")
    return value


def _shapes(operator: Operator, args: Any, kwargs: Any, back: dict[int, Tensor]) -> Any:
    """The result as meta tensors; arguments that are results stand for themselves."""
    stands_for: dict[int, Tensor] = {}
    made = operator.overload(*_to_meta(args, stands_for), **_to_meta(kwargs, stands_for))

    def restore(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return stands_for.get(id(value), value)
        if isinstance(value, (list, tuple)):
            return type(value)(restore(item) for item in value)
        return value

    return restore(made)
