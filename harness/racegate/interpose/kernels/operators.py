"""What is known of an operator from its schema, and the lists of operators that need more."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from racegate.interpose.kernels.twins import TWINS
from racegate.interpose.kernels.waiting import ImplicitWait, Waits

with suppress(ImportError):  # other releases may keep it elsewhere: then nothing is met
    from torch._library.simple_registry import singleton

_WAITS = Waits(str(torch.__version__))

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

_NO_NUMBER = "Expected a value of type 'Tensor' for argument"  # torch's words

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


class NumberCall:
    """Calls an operator with numbers in the place of tensors.

    Not every overload takes them, nor that of every release of torch: then torch is to choose among
    all of the operator's, which costs ten times as much and is found out once.
    """

    __slots__ = ("_call", "_packet")

    def __init__(self, overload: Any) -> None:
        self._call = overload
        self._packet = overload.overloadpacket

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return self._call(*args, **kwargs)
        except RuntimeError as error:
            if self._call is self._packet or _NO_NUMBER not in str(error):
                raise
        self._call = self._packet
        return self._packet(*args, **kwargs)


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator as the device runs it. short: as a finding names it (`add` of `add.Tensor`).

    kernel: its CPU kernel without the way there, which takes no number for a tensor, or its twin;
        None: it has neither
    shaping: what also computes shapes of meta tensors, as a kernel alone does not
    tensors: positions of arguments that are tensors
    writes, writes_named: the arguments that it writes, by position and by name
    wait: with which arguments the host waits inside a call; None: with none
    has_outputs: it writes some that can only be given by name (`out=`)
    gives_value: its result is no tensor (`equal`)
    is_sized_by_values: the sizes of its result follow from values (`nonzero`)
    with_number: what computes it if a number stands for a tensor
    plan: what native/operators.c needs of it: both of these, tensors and writes as bits, names that
        it writes; None: it has to go the other way
    """

    name: str
    short: str
    overload: Any
    kernel: Callable[..., Any] | None
    shaping: Callable[..., Any]
    with_number: NumberCall
    tensors: frozenset[int]
    writes: frozenset[int]
    writes_named: frozenset[str]
    has_outputs: bool
    is_random: bool
    is_indexed: bool
    takes_generator: bool
    gives_value: bool
    is_sized_by_values: bool
    wait: ImplicitWait | None
    plan: tuple[Callable[..., Any], NumberCall, int, int, frozenset[str]] | None


def describe(name: str) -> Operator:
    """The operator with this qualified name (`aten::add.Tensor`)."""
    namespace, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), base)
    op = getattr(packet, overload or "default")
    arguments, returned = op._schema.arguments, op._schema.returns
    written = [a.alias_info is not None and a.alias_info.is_write for a in arguments]
    twin = TWINS.get(name)
    kernel = native_kernel(name, "CPU") if twin is None and has_kernel(name, "CPU") else twin
    tensors = frozenset(i for i, a in enumerate(arguments) if "Tensor" in str(a.type))
    writes = frozenset(i for i, is_written in enumerate(written) if is_written)
    writes_named = frozenset(a.name for a, w in zip(arguments, written, strict=True) if w)
    is_random = twin is None and torch.Tag.nondeterministic_seeded in op.tags
    with_number, plan = NumberCall(op), None
    if kernel is not None and not is_random:
        plan = (kernel, with_number, _bits(tensors), _bits(writes), writes_named)
    return Operator(
        name=name,
        short=base,
        overload=op,
        kernel=kernel,
        shaping=op if twin is None else twin,
        with_number=with_number,
        tensors=tensors,
        writes=writes,
        writes_named=writes_named,
        has_outputs=any(a.kwarg_only and w for a, w in zip(arguments, written, strict=True)),
        is_random=is_random,
        is_indexed=base in PICKS,
        takes_generator=any(a.name == "generator" for a in arguments),
        is_sized_by_values=torch.Tag.dynamic_output_shape in op.tags and not _takes_indices(base),
        gives_value=bool(returned) and not any("Tensor" in str(r.type) for r in returned),
        wait=_WAITS.of(name),
        plan=plan,
    )


def _bits(positions: frozenset[int]) -> int:
    return sum(1 << position for position in positions)


def _takes_indices(base: str) -> bool:
    return PICKS.get(base, (0, ""))[1] == "index"


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


def names_of_all(key: str) -> list[str]:
    """All operators that have a kernel for the dispatch key and make more than another view."""
    return [
        name
        for name in sorted(torch._C._dispatch_get_all_op_names())
        if name.startswith("aten::") and has_kernel(name, key) and not is_view(name)
    ]


def is_view(name: str) -> bool:
    """Whether the operator only makes another view: it aliases an argument and writes none."""
    base, _, overload = name.partition(".")
    arguments = torch._C._get_schema(base, overload).arguments
    marks = [argument.alias_info for argument in arguments if argument.alias_info is not None]
    return bool(marks) and not any(mark.is_write for mark in marks)


# ---- what torch keeps of an operator is made at its first call, which processes that were forked
# ---- before that would make again


def met() -> list[str]:
    """Names of operators that a mode has seen in this process."""
    with suppress(NameError, AttributeError):
        return list(singleton._data)
    return []


def meet(names: Iterable[str]) -> None:
    """As if a mode had seen them."""
    for name in names:
        namespace, _, rest = name.partition("::")
        base, _, overload = rest.partition(".")
        with suppress(NameError, AttributeError):
            getattr(getattr(getattr(torch.ops, namespace), base), overload or "default")
            singleton.find(name)
