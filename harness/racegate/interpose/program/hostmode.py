"""CPU operators on pinned memory: what the host reads and writes through torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch._ops import HigherOrderOperator
from torch.utils._python_dispatch import TorchDispatchMode

from racegate.interpose.device.session import Session
from racegate.interpose.kernels.aliases import NoAlias, bytes_of, is_plain, tensors_in
from racegate.interpose.kernels.binding import PLAIN, TENSORS
from racegate.interpose.kernels.operators import Operator, has_kernel
from racegate.interpose.native.library import new_are_elsewhere

# They look at shapes and addresses only.
_BLIND = frozenset({
    "empty_like", "new_empty", "new_empty_strided", "new_zeros", "new_ones", "new_full",
    "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "randint_like", "is_pinned",
    "is_same_size", "set_", "resize_", "record_stream", "_has_compatible_shallow_copy_type",
    "empty", "empty_strided", "_reshape_alias", "lift", "lift_fresh", "detach_",
})  # fmt: skip

_faking = torch._C._get_dispatch_mode  # shapes without memory: that mode is asked after this one
_FAKE = torch._C._TorchDispatchModeKey.FAKE
_EMPTY = frozenset({"empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided"})
_PIN = torch.ops.aten._pin_memory.default
_COPY = torch.ops.aten.copy_.default
_TO_COPY = torch.ops.aten._to_copy.default
_NEW = torch.ops.aten.empty_strided.default
_HOST = torch.device("cpu")
_OF_MOVES = frozenset({"dtype", "layout", "device", "non_blocking"})


@dataclass(frozen=True, slots=True)
class _Effect:
    """What an operator does to pinned memory. written: positions and names of arguments it writes;
    is_blind: it touches no element; is_view: it makes another view of its first argument, and that
    itself; read_kind, write_kind: how a finding names it.
    """

    name: str
    read_kind: str
    write_kind: str
    is_composite: bool
    is_blind: bool
    is_view: bool
    written: frozenset[Any]


def _is_first_on_device(args: tuple[Any, ...]) -> bool:
    """Whether the first argument is a CUDA tensor, or a list that begins with one: then the
    dispatcher would take the kernel of the device, if the others are dense.
    """
    first: Any = args[0] if args else None
    if type(first) is torch.Tensor:
        return bool(first.is_cuda)
    if isinstance(first, (list, tuple)) and first:
        first = first[0]
    return isinstance(first, torch.Tensor) and bool(first.is_cuda)


def _is_for_device(kwargs: dict[str, Any]) -> bool:
    device = kwargs.get("device")
    return device is not None and torch.device(device).type == "cuda"


def _is_device_copy(to: Any, source: Any) -> bool:
    return (to.is_cuda or source.is_cuda) and all(
        tensor.layout is torch.strided and not tensor.is_nested and not tensor.is_quantized
        for tensor in (to, source)
    )


class DeviceKernels(Protocol):
    """What runs the operators of the device.

    direct: by the id of its overload, what `run` runs without the way through the dispatcher
    allocating: likewise what makes new memory on the device
    """

    direct: dict[int, Operator]
    allocating: dict[int, Callable[..., Any]]

    def run(self, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs one operator of `direct`."""
        ...

    def copy(self, to: Any, source: Any, non_blocking: Any = 0) -> Any:
        """Runs `copy_` with at least one tensor on the device."""
        ...


class HostMode(TorchDispatchMode):  # type: ignore[misc]
    """Sees every operator of a thread before its kernel. Those of the device go to their kernels
    from here, without the way through the dispatcher.
    """

    def __init__(self, session: Session, kernels: DeviceKernels) -> None:
        super().__init__()
        self._session = session
        self._kernels = kernels
        self._effects: dict[int, _Effect] = {}
        self._are_elsewhere = new_are_elsewhere(TENSORS, PLAIN, torch.device("cpu"))

    supports_higher_order_operators = True  # their bodies take themselves apart: parts come here

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # or torch imports its compiler, two seconds, at the first operator

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        session = self._session
        if session.is_own or isinstance(func, HigherOrderOperator) or _faking(_FAKE) is not None:
            return func(*args, **kwargs)
        if types and not all(map(is_plain, types)):
            if any(cls.__module__.startswith("torch._subclasses") for cls in types):
                return func(*args, **kwargs)  # shapes only, without memory
            return NotImplemented  # DTensor and the like take themselves apart: parts come here
        if func is _COPY:
            if not types and _is_device_copy(args[0], args[1]):
                return self._kernels.copy(*args)
        elif not types and _is_first_on_device(args) and id(func) in self._kernels.direct:
            try:
                return self._kernels.run(self._kernels.direct[id(func)], args, kwargs)
            except NoAlias:  # another kernel than that of dense tensors is the right one
                return func(*args, **kwargs)
        elif not types and self._effect(func).is_view:
            session.drain()
            return func(*args, **kwargs)
        elif func is _TO_COPY and not types and self._kernels.allocating:
            made = self._moved(args[0], kwargs)
            if made is not None:
                return made
        elif id(func) in self._kernels.allocating and _is_for_device(kwargs):
            return self._kernels.allocating[id(func)](*args, **kwargs)
        session.drain()
        spans = session.spans
        is_new = kwargs.get("pin_memory") or func is _PIN
        if not spans.pinned or (
            func is not _PIN and self._are_elsewhere(args, kwargs, *spans.pinned_hull)
        ):
            result = func(*args, **kwargs)
            if is_new:
                self._note_new(result)
            return result
        touching, has_cuda = self._find_pinned(args, kwargs)
        if not touching and not is_new:
            return func(*args, **kwargs)
        effect = self._effect(func)
        if effect.is_composite and touching:
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        if touching and not effect.is_blind and not has_cuda:
            self._report(effect, touching)
        result = func(*args, **kwargs)
        if is_new:
            self._note_new(result)
            self._report_new(effect, result)
        return result

    def _moved(self, tensor: Any, kwargs: dict[str, Any]) -> Any:
        """The usual `to("cuda")` of a contiguous tensor, or `to("cpu", non_blocking=True)`, as
        torch makes it of its two parts; None if it is not all the usual.
        """
        if not kwargs.keys() <= _OF_MOVES or type(tensor) not in TENSORS:
            return None
        options = (kwargs.get("dtype", tensor.dtype), kwargs.get("layout", torch.strided))
        if options != (tensor.dtype, torch.strided) or not tensor.is_contiguous():
            return None
        shape, is_late = (tensor.size(), tensor.stride()), kwargs.get("non_blocking", False)
        if tensor.is_cpu and _is_for_device(kwargs):
            new = self._kernels.allocating[id(_NEW)]
            to = new(*shape, dtype=tensor.dtype, device=kwargs["device"])
        elif tensor.is_cuda and is_late and kwargs.get("device") == _HOST:
            with self:  # pinned, and seen as such
                to = _NEW(*shape, dtype=tensor.dtype, device=_HOST, pin_memory=True)
        else:
            return None
        return self._kernels.copy(to, tensor, is_late)

    def _find_pinned(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[list[tuple[Any, Any]], bool]:
        """(key and tensor of arguments in pinned memory, whether it runs on the device or moves
        something there).
        """
        find = self._session.spans.find
        touching = []
        has_cuda = _is_for_device(kwargs)
        for key, value in (*enumerate(args), *kwargs.items()):
            if type(value) in PLAIN:
                continue
            for tensor in (value,) if type(value) is torch.Tensor else tensors_in(value):
                if tensor.is_cuda:
                    has_cuda = True
                elif tensor.is_cpu and tensor.layout is torch.strided and find(tensor.data_ptr()):
                    touching.append((key, tensor))
        return touching, has_cuda

    def _effect(self, func: Any) -> _Effect:
        known = self._effects.get(id(func))
        if known is None:
            known = self._effects[id(func)] = _effect_of(func)
        return known

    def _report(self, effect: _Effect, touching: list[tuple[Any, Any]]) -> None:
        session = self._session
        reads: list[tuple[int, int]] = []
        writes: list[tuple[int, int]] = []
        for key, tensor in touching:
            parts = writes if key in effect.written else reads
            parts += bytes_of(session, tensor)
        kind = effect.write_kind if writes else effect.read_kind
        session.host_access(kind, tuple(reads), tuple(writes))

    def _note_new(self, result: Any) -> None:
        """Where the program asks for pinned memory, for whoever is told of a race on it."""
        for tensor in tensors_in(result):
            if tensor.is_cpu and tensor.layout is torch.strided:
                self._session.origins.asked_for_pinned(tensor.data_ptr(), tensor.nbytes)

    def _report_new(self, effect: _Effect, result: Any) -> None:
        """New memory that is pinned was filled by the operator, or holds nothing yet."""
        session = self._session
        for tensor in tensors_in(result):
            if not tensor.is_cpu or tensor.layout is not torch.strided or not tensor.numel():
                continue
            if session.spans.find(tensor.data_ptr()) is None:
                continue
            written = bytes_of(session, tensor)
            session.pinned(written[0][0], written[-1][1])
            if effect.name not in _EMPTY:
                session.host_access(effect.write_kind, (), written)


def _effect_of(func: Any) -> _Effect:
    written: set[Any] = set()
    aliases = False
    for index, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None:
            aliases = True
            if argument.alias_info.is_write:
                written |= {index, argument.name}
    name = func._schema.name.partition("::")[2]
    is_composite = has_kernel(func.name(), "CompositeImplicitAutograd")
    return _Effect(
        name=name,
        read_kind=f"host read ({name})",
        write_kind=f"host write ({name})",
        is_composite=is_composite,
        is_blind=name in _BLIND or (aliases and not written),
        is_view=aliases and not written and not is_composite,
        written=frozenset(written),
    )
