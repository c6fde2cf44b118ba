"""Compiled operators that only copy: computed by what their author says that they move."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from racegate.interpose.device.calls import Calls
from racegate.interpose.device.copies import Copy, CopyBatch, SourceOrder
from racegate.interpose.device.library import Library
from racegate.interpose.device.session import Session
from racegate.interpose.device.spans import Place
from racegate.interpose.kernels.aliases import alias_of, bytes_of
from racegate.interpose.native.streams import current_stream
from racegate.order.ranges import Ranges, merged

Moves = Iterable[tuple[int, int, int]]  # (address of the target, of the source, bytes) each


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyOperator:
    """An operator that copies on the current stream, and does nothing else.

    schema: as `torch.library` has it, with its namespace
    moves: called with the operator's arguments, those on the device as tensors of the host over the
        same bytes
    reads: names of arguments whose values say what is copied; is one of them on the device, a
        kernel reads it there, and copies
    any_order: name of an argument that says, if it is true, that sources may be read at any time,
        but on the default stream, which takes no batches of copies
    """

    schema: str
    moves: Callable[..., Moves]
    reads: tuple[str, ...] = ()
    any_order: str = ""

    @property
    def name(self) -> str:
        """With its namespace."""
        return self.schema.partition("(")[0]


@dataclass(frozen=True, slots=True)
class CopyOperators:
    """Puts such operators in their place. registrations: live as long as the process"""

    session: Session
    library: Library
    calls: Calls
    registrations: list[torch.library.Library] = field(default_factory=list)

    def add(self, operator: CopyOperator) -> None:
        """From now on the operator copies on the virtual device, compiled or not."""
        namespace, _, name = operator.name.partition("::")
        registered = torch.library.Library(namespace, "FRAGMENT")
        if not _is_registered(operator):
            registered.define(operator.schema.partition("::")[2])
        arguments = [one.name for one in torch._C.parse_schema(operator.schema).arguments]
        kernel = partial(self._run, operator, arguments)
        for key in ("CUDA", "CPU"):
            registered.impl(name, kernel, key, allow_override=True)
        self.registrations.append(registered)

    def add_missing(self, operator: CopyOperator) -> None:
        """The same, if nobody has registered the operator: what is compiled calls the runtime."""
        if not _is_registered(operator):
            self.add(operator)

    def _run(self, operator: CopyOperator, names: list[str], *args: Any, **kwargs: Any) -> None:
        session, stream = self.session, current_stream()
        session.drain()
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        told = [given[name] for name in operator.reads]
        for one in told:
            if not one.is_cuda and session.spans.find(one.data_ptr()) is not None:
                session.host_access(f"host read ({operator.name})", bytes_of(session, one), ())
        find = partial(self._copies, operator, {name: self._seen(given[name]) for name in given})
        if any(one.is_cuda for one in told):
            self._launch(operator, find, told, stream)
        else:
            is_any = bool(stream and operator.any_order and given.get(operator.any_order))
            self.calls.copy_many(find(), stream, SourceOrder.ANY if is_any else SourceOrder.STREAM)

    def _launch(
        self, operator: CopyOperator, find: Callable[[], list[Copy]], told: list[Any], stream: int
    ) -> None:
        """A kernel finds out what it copies when it runs."""
        session, batch = self.session, CopyBatch(tuple(find()))
        read: Ranges = tuple(pair for one in told if one.is_cuda for pair in bytes_of(session, one))
        reads, writes = merged([*read, *batch.reads]), batch.writes
        name = operator.name.rpartition("::")[2]

        def work() -> None:
            CopyBatch(tuple(one for one in find() if self._is_known(one)))()

        capture = self.library.capture_of(stream) if session.graphs.capturing else 0
        if not session.graphs.add(capture, name, stream, reads, writes, work):
            session.issue(name, stream, reads, writes, work)

    def _copies(self, operator: CopyOperator, given: dict[str, Any]) -> list[Copy]:
        with self.session.own():
            return [Copy(*one) for one in operator.moves(**given) if one[2]]

    def _seen(self, value: Any) -> Any:
        """An argument, where it is on the device as a tensor of the host over the same bytes."""
        if isinstance(value, (list, tuple)):
            return [self._seen(one) for one in value]
        is_there = isinstance(value, torch.Tensor) and value.is_cuda
        return alias_of(self.session, value) if is_there else value

    def _is_known(self, copy: Copy) -> bool:
        """Indices that have not landed may name any address: what lies nowhere is not touched."""
        places = map(self.session.spans.place, (copy.to, copy.source))
        return Place.PAGEABLE not in places


def _is_registered(operator: CopyOperator) -> bool:
    """With torch itself: `torch.ops` may have names for operators that an engine lacks."""
    return bool(torch._C._jit_get_schemas_for_operator(operator.name))
