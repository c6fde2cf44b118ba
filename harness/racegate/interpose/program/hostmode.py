"""CPU operators on pinned memory: what the host reads and writes through torch."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from racegate.interpose.device.session import Session
from racegate.interpose.kernels.aliases import bytes_of, tensors_in

# They look at shapes and addresses only.
_BLIND = frozenset({
    "empty_like", "new_empty", "new_empty_strided", "new_zeros", "new_ones", "new_full",
    "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "randint_like", "is_pinned",
    "is_same_size", "set_", "resize_", "record_stream", "_has_compatible_shallow_copy_type",
    "empty", "empty_strided", "_reshape_alias", "lift", "lift_fresh", "detach_",
})  # fmt: skip
# What they write they do not read.
_OVERWRITING = frozenset({"copy_", "fill_", "zero_", "normal_", "uniform_", "random_"})


class HostMode(TorchDispatchMode):  # type: ignore[misc]
    """Sees every operator of a thread before its kernel; CUDA operators pass through."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        self._effects: dict[Any, tuple[bool, bool, frozenset[Any]]] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # or torch imports its compiler, two seconds, at the first operator

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        session = self._session
        session.drain()
        if session.is_own or not session.spans.pinned:
            return func(*args, **kwargs)
        touching = [
            (key, tensor)
            for key, value in (*enumerate(args), *kwargs.items())
            for tensor in tensors_in(value)
            if tensor.is_cpu
            and tensor.layout is torch.strided
            and session.spans.find(tensor.data_ptr()) is not None
        ]
        is_composite, is_blind, written = self._effect(func)
        if is_composite and touching:
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        if touching and not is_blind and not self._has_cuda(args, kwargs):
            self._report(func, touching, written)
        result = func(*args, **kwargs)
        self._report_new(func, touching, result)
        return result

    def _effect(self, func: Any) -> tuple[bool, bool, frozenset[Any]]:
        """(composite, touches no element, keys of written arguments) of an operator."""
        known = self._effects.get(func)
        if known is None:
            arguments = func._schema.arguments
            written: set[Any] = set()
            aliases = False
            for index, argument in enumerate(arguments):
                if argument.alias_info is not None:
                    aliases = True
                    if argument.alias_info.is_write:
                        written |= {index, argument.name}
            name = func._schema.name.partition("::")[2]
            key = "CompositeImplicitAutograd"
            composite = torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), key)
            is_blind = name in _BLIND or (aliases and not written)
            known = self._effects[func] = (composite, is_blind, frozenset(written))
        return known

    @staticmethod
    def _has_cuda(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether the operator runs on the device, or moves something there."""
        device = kwargs.get("device")
        if device is not None and torch.device(device).type == "cuda":
            return True
        values = (*args, *kwargs.values())
        return any(tensor.is_cuda for value in values for tensor in tensors_in(value))

    def _report(self, func: Any, touching: list[tuple[Any, Any]], written: frozenset[Any]) -> None:
        session = self._session
        name = func._schema.name.partition("::")[2]
        reads: list[tuple[int, int]] = []
        writes: list[tuple[int, int]] = []
        for key, tensor in touching:
            ranges = bytes_of(session, tensor)
            if key in written:
                writes.extend(ranges)
            if key not in written:
                reads.extend(ranges)
        verb = "write" if writes else "read"
        session.host_access(f"host {verb} ({name})", tuple(reads), tuple(writes))

    def _report_new(self, func: Any, touching: list[tuple[Any, Any]], result: Any) -> None:
        """Pinned results that were not arguments were filled by the operator."""
        session = self._session
        name = func._schema.name.partition("::")[2]
        if name in ("empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided"):
            return
        known = {tensor.untyped_storage().data_ptr() for _, tensor in touching}
        for tensor in tensors_in(result):
            if not tensor.is_cpu or tensor.layout is not torch.strided:
                continue
            if tensor.untyped_storage().data_ptr() in known or not tensor.numel():
                continue
            if session.spans.find(tensor.data_ptr()) is not None and name != "_to_copy":
                session.host_access(f"host write ({name})", (), bytes_of(session, tensor))
