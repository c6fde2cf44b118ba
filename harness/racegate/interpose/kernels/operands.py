"""Tensors of the host among the arguments of an operator of the device: torch's own CUDA code says
whether it takes them, which it copies to the device, and whether it waits for that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from racegate.interpose.device.library import Library, RuntimeCall
from racegate.interpose.device.session import Session
from racegate.interpose.device.spans import Place
from racegate.interpose.kernels.aliases import Tensor, bytes_of, tensors_in
from racegate.interpose.kernels.operators import Operator, describe
from racegate.interpose.kernels.waiting import WaitReach
from racegate.interpose.native import factories
from racegate.interpose.native.streams import current_gpu, current_stream
from racegate.order.ranges import Ranges, merged

Args = tuple[Any, ...]
Named = dict[str, Any]

# Between host and device it is made of copies: each of its members is read or written when the
# stream gets there.
COPY_MEMBERS = "aten::_foreach_copy_"
# torch compiles them at the call, as its special functions, with a library that asks the driver.
# They take a number of the host and read it there.
COMPILED = frozenset({"gcd", "lcm"})


@dataclass(frozen=True, slots=True)
class Taken:
    """What torch does with the operands on the host.

    error: that it raises; None: it takes them
    uploaded: those that it copies to the device, by their place among the operands on the host;
        the others the host reads, or computes with, at the call
    covers: what the host has waited for when the call returns; None: it does not wait
    """

    error: Exception | None = None
    uploaded: frozenset[int] = frozenset()
    covers: WaitReach | None = None


def host_operands(args: Args, kwargs: Named) -> list[tuple[int | str, Tensor]]:
    """Tensors of the host, each with its argument's position or name."""
    named: list[tuple[int | str, Any]] = [*enumerate(args), *kwargs.items()]
    return [(key, t) for key, value in named for t in tensors_in(value) if t.is_cpu]


class OperatorRunner(Protocol):
    """What runs the operators of the device."""

    def run(self, operator: Operator, args: Args, kwargs: Named) -> Any: ...

    def copy(self, to: Tensor, source: Tensor, non_blocking: Any = 0) -> Tensor: ...


class HostUse:
    """What torch does with them, found out once for all calls that are alike.

    natives: torch's own CUDA kernels, by operator
    """

    def __init__(self, session: Session, library: Library, device: OperatorRunner) -> None:
        self._session = session
        self._library = library
        self._device = device
        self._rehearsal = library.rehearsal
        self._known: dict[str, Taken] = {}
        self._copying, self._copying_members = describe("aten::copy_"), describe(COPY_MEMBERS)
        self.natives: dict[str, Callable[..., Any]] = {}

    def take(
        self,
        operator: Operator,
        args: Args,
        kwargs: Named,
        hosts: list[tuple[int | str, Tensor]],
    ) -> WaitReach | None:
        """Records what becomes of operands on the host; returns what is waited for. Raises as torch
        does if it takes none there.
        """
        session = self._session
        taken = self._taken(operator, args, kwargs)
        uploaded, reads, writes = pinned_bytes(session, operator, hosts, taken.uploaded)
        if reads or writes:
            session.host_access(f"host read by {operator.short}", reads, writes)
        stream = current_stream()
        for low, high in uploaded:
            session.guards.lift_to_read(low, high)
        capture = self._library.capture_of(stream) if session.graphs.capturing else 0
        if uploaded and not session.graphs.add(capture, "h2d", stream, uploaded, (), _nothing):
            session.issue("h2d", stream, uploaded, (), None)
        return taken.covers

    def copy_members(self, to: list[Tensor], source: list[Tensor], non_blocking: Any = 0) -> None:
        """Of `_foreach_copy_`; between host and device its members are copied one by one."""
        args = (to, source, non_blocking)
        if not host_operands(args, {}):
            self._device.run(self._copying_members, args, {})
            return
        self._taken(self._copying_members, args, {})
        for one, other in zip(to, source, strict=True):
            if one.is_cuda or other.is_cuda:
                self._device.copy(one, other, non_blocking)
                continue
            pair: list[tuple[int | str, Tensor]] = [(0, one), (1, other)]
            _, reads, writes = pinned_bytes(self._session, self._copying, pair, ())
            self._session.host_access("host write (copy_)", reads, writes)
            one.copy_(other)

    def _taken(self, operator: Operator, args: Args, kwargs: Named) -> Taken:
        is_compiled = operator.short in COMPILED or operator.short.startswith("special_")
        if is_compiled and not any(tensor.dim() for _, tensor in host_operands(args, kwargs)):
            return Taken()
        call = "|".join((operator.name, *map(_word, args), *kwargs, *map(_word, kwargs.values())))
        known = self._known.get(call)
        if known is None:
            known = self._known[call] = self._rehearsed(operator, args, kwargs)
        if known.error is not None:
            raise known.error
        return known

    def _rehearsed(self, operator: Operator, args: Args, kwargs: Named) -> Taken:
        hosts = [tensor for _, tensor in host_operands(args, kwargs)]
        as_tensors = [
            factories.tensor(value, device="cpu")
            if at in operator.tensors and isinstance(value, (bool, int, float, complex))
            else value
            for at, value in enumerate(args)
        ]
        generator = torch.cuda.default_generators[current_gpu()]
        offset = generator.get_offset()
        with self._rehearsal.begin(self._not_written(hosts)) as asked:
            try:
                self.natives[operator.name](*as_tensors, **kwargs)
            except (RuntimeError, TypeError, ValueError, IndexError) as error:
                return Taken(error=error.with_traceback(None))
            finally:
                generator.set_offset(offset)
            return Taken(uploaded=_uploaded(asked, hosts), covers=_covers(asked))

    def _not_written(self, hosts: list[Tensor]) -> Ranges:
        """The program's memory: its tensors on the host, and all of the device, of which the
        rehearsed code may have been given what operations that have not run will still read.
        """
        own = ((t.data_ptr(), t.data_ptr() + t.untyped_storage().nbytes()) for t in hosts)
        spans = (span for span in self._session.spans if span.place is Place.DEVICE)
        return (*own, *((span.base, span.end) for span in spans))


def pinned_bytes(
    session: Session,
    operator: Operator,
    hosts: list[tuple[int | str, Tensor]],
    uploaded: Collection[int],
) -> tuple[Ranges, Ranges, Ranges]:
    """Of operands on the host that are pinned: bytes that the stream copies to the device, and
    those that the host reads and writes at the call.
    """
    copied: list[tuple[int, int]] = []
    reads: list[tuple[int, int]] = []
    writes: list[tuple[int, int]] = []
    for at, (key, tensor) in enumerate(hosts):
        if session.spans.pinned and session.spans.find(tensor.data_ptr()) is not None:
            is_written = key in operator.writes or key in operator.writes_named
            to = copied if at in uploaded else writes if is_written else reads
            to.extend(bytes_of(session, tensor))
    return merged(copied), merged(reads), merged(writes)


def _uploaded(asked: list[RuntimeCall], hosts: list[Tensor]) -> frozenset[int]:
    sources = {call.source for call in asked}
    return frozenset(at for at, tensor in enumerate(hosts) if tensor.data_ptr() in sources)


def _covers(asked: list[RuntimeCall]) -> WaitReach | None:
    waits = [at for at, call in enumerate(asked) if call.is_wait]
    if not waits:
        return None
    return WaitReach.ITSELF if waits[-1] == len(asked) - 1 else WaitReach.BEFORE


def _word(value: Any) -> str:
    """What torch's choice may hang on: where a tensor is, its type, and whether it is a number or
    has no elements.
    """
    if isinstance(value, torch.Tensor):
        return f"{value.device.type}{value.dtype}{min(value.dim(), 1)}{bool(value.numel())}"
    if isinstance(value, (list, tuple)):
        return f"({','.join(map(_word, value))})"
    is_told = value is None or isinstance(value, (bool, str, torch.dtype))
    return str(value) if is_told else type(value).__name__


def _nothing() -> None:
    """The values were taken at the call."""
