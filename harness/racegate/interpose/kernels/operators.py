"""What is known of an operator from its schema, and the lists of operators that need more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from racegate.interpose.kernels.waiting import RULES, waiting_operators

_WAITING = waiting_operators(str(torch.__version__))

# Real kernels that touch no element: memory, shape and bookkeeping of torch's own.
KEPT = frozenset({
    "aten::empty.memory_format", "aten::empty_strided", "aten::_reshape_alias", "aten::as_strided",
    "aten::set_", "aten::set_.source_Tensor", "aten::set_.source_Storage",
    "aten::set_.source_Storage_storage_offset", "aten::resize_", "aten::record_stream",
    "aten::_efficientzerotensor", "aten::is_pinned", "aten::_pin_memory", "aten::copy_",
    "aten::_nested_view_from_buffer", "aten::_local_scalar_dense",
})  # fmt: skip

# No kernel of their own for CUDA, but one body for all devices, which launches some below the
# dispatcher. ldexp has one from torch 2.14 on, and was made of others before.
ADDED = (
    "aten::convolution", "aten::convolution.out", "aten::ldexp.Tensor", "aten::ldexp.out",
    "aten::ldexp_",
)  # fmt: skip

# operator: (argument whose elements are picked, how). Operators that make a changed copy read all.
PICKS = {
    "index": (0, "index"),
    "_unsafe_index": (0, "index"),
    "index_put_": (0, "index"),
    "_index_put_impl_": (0, "index"),
    "index_select": (0, "index_select"),
    "index_add_": (0, "index_select"),
    "index_copy_": (0, "index_select"),
    "index_fill_": (0, "index_select"),
    "gather": (0, "gather"),
    "scatter_": (0, "gather"),
    "scatter_add_": (0, "gather"),
    "scatter_reduce_": (0, "gather"),
    "embedding": (0, "rows"),
    "masked_select": (0, "mask"),
    "take": (0, "take"),
    "put_": (0, "take"),
}


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator as the device runs it. short: as a finding names it (`add` of `add.Tensor`).

    kernel: its CPU kernel without the way there, which takes no number for a tensor; None: none
    tensors: positions of arguments that are tensors
    writes, writes_named: the arguments that it writes, by position and by name
    waits: whether the host waits inside a call with these arguments; None: it never does
    has_outputs: it writes some that can only be given by name (`out=`)
    gives_value: its result is no tensor (`equal`)
    plan: what native/operators.c needs of it: the kernel, the one for a number as second argument,
        tensors and writes as bits, names that it writes; None: it has to go the other way
    """

    name: str
    short: str
    overload: Any
    kernel: Callable[..., Any] | None
    tensors: frozenset[int]
    writes: frozenset[int]
    writes_named: frozenset[str]
    has_outputs: bool
    is_random: bool
    is_indexed: bool
    takes_generator: bool
    gives_value: bool
    waits: Callable[[tuple[Any, ...]], bool] | None
    plan: tuple[Callable[..., Any], Callable[..., Any], int, int, frozenset[str]] | None


def describe(name: str) -> Operator:
    """The operator with this qualified name (`aten::add.Tensor`)."""
    namespace, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), base)
    op = getattr(packet, overload or "default")
    arguments, returned = op._schema.arguments, op._schema.returns
    written = [a.alias_info is not None and a.alias_info.is_write for a in arguments]
    kernel = native_kernel(name, "CPU") if has_kernel(name, "CPU") else None
    tensors = frozenset(i for i, a in enumerate(arguments) if "Tensor" in str(a.type))
    writes = frozenset(i for i, is_written in enumerate(written) if is_written)
    writes_named = frozenset(a.name for a, w in zip(arguments, written, strict=True) if w)
    is_random = torch.Tag.nondeterministic_seeded in op.tags
    plan = None
    if kernel is not None and not is_random:
        plan = (kernel, _number_kernel(op), _bits(tensors), _bits(writes), writes_named)
    return Operator(
        name=name,
        short=base,
        overload=op,
        kernel=kernel,
        tensors=tensors,
        writes=writes,
        writes_named=writes_named,
        has_outputs=any(a.kwarg_only and w for a, w in zip(arguments, written, strict=True)),
        is_random=is_random,
        is_indexed=base in PICKS,
        takes_generator=any(a.name == "generator" for a in arguments),
        gives_value=bool(returned) and not any("Tensor" in str(r.type) for r in returned),
        waits=_waits(name),
        plan=plan,
    )


def _bits(positions: frozenset[int]) -> int:
    return sum(1 << position for position in positions)


def _number_kernel(op: Any) -> Callable[..., Any]:
    """What runs the operator if its second argument is a number in the place of a tensor.

    It is the overload for a number where that one is the same otherwise; else torch chooses among
    all, because not every release of torch lets this overload have a number.
    """
    packet = op.overloadpacket
    if op._overloadname != "Tensor" or "Scalar" not in packet.overloads():
        return packet  # type: ignore[no-any-return]
    taken = [(a.name, str(a.type)) for a in op._schema.arguments]
    taken[1:2] = [(name, "number") for name, _ in taken[1:2]]
    if taken != [(a.name, str(a.type)) for a in packet.Scalar._schema.arguments]:
        return packet  # type: ignore[no-any-return]
    return native_kernel(packet.Scalar.name(), "CPU")


def _waits(name: str) -> Callable[[tuple[Any, ...]], bool] | None:
    return RULES.get(name, (lambda args: True) if name in _WAITING else None)


def has_kernel(name: str, key: str) -> bool:
    """Whether a kernel of its own is registered for the dispatch key."""
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(name, key))


def native_kernel(name: str, key: str) -> Callable[..., Any]:
    """The kernel that is registered now, whatever is registered in its place later."""
    dispatch_key = torch._C.DispatchKey.__members__[key]
    kernel = torch._C._dispatch_get_computed_kernel_for_dispatch_key(name, dispatch_key)
    return partial(kernel.call_boxed, torch._C.DispatchKeySet(dispatch_key))


def device_operators() -> list[Operator]:
    """All operators whose CUDA kernel touches elements: those that the device computes itself."""
    found = []
    for name in sorted(torch._C._dispatch_get_all_op_names()):
        if not name.startswith("aten::") or name in KEPT:
            continue
        is_added = name in ADDED and has_kernel(name, "CompositeExplicitAutograd")
        if (has_kernel(name, "CUDA") or is_added) and not is_view(name):
            found.append(describe(name))
    return found


def is_view(name: str) -> bool:
    """Whether the operator only makes another view: it aliases an argument and writes none."""
    base, _, overload = name.partition(".")
    arguments = torch._C._get_schema(base, overload).arguments
    marks = [argument.alias_info for argument in arguments if argument.alias_info is not None]
    return bool(marks) and not any(mark.is_write for mark in marks)
