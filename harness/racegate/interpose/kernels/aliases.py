"""CPU tensors over the bytes of CUDA tensors, and the bytes that tensors touch."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch

from racegate.interpose.device.session import Session
from racegate.interpose.device.spans import Place, Span
from racegate.interpose.native import factories
from racegate.interpose.native.streams import current_gpu
from racegate.order.ranges import Ranges, is_coarse, strided_ranges

Tensor = Any  # torch is untyped here
_PLAIN = torch.Tensor.__torch_dispatch__
_unseen = torch._C._DisableTorchDispatch  # an alias is made without the way through modes

# On the current device: a shorter way to the allocator than the operator.
new_tensor = torch._C._dynamo.guards._empty_strided_cuda

_WITH_MEMORY = (torch.Tensor, torch.UntypedStorage)
COARSE = "views taken as a whole (too many separate runs)"
_ALIASES_MAX = 1 << 14  # a loop meets the same views again, because the allocators reuse addresses


class NoAlias(Exception):
    """The tensor has no strided bytes of its own: it is sparse, nested or quantised."""


class NoMemory(Exception):
    """A tensor on the device has an address that the virtual device did not give: our fault."""


class Alias(NamedTuple):
    """A CPU tensor over the bytes of a CUDA tensor. ranges: its bytes; pinned: the memory around,
    if it is the host's; is_complex: there may be another of the same bytes with a lazy conjugation.
    """

    tensor: Tensor
    ranges: Ranges
    pinned: Span | None = None
    is_complex: bool = False


def alias_of(session: Session, tensor: Tensor) -> Tensor:
    """A CPU tensor over the same bytes, with the same shape, strides, dtype and lazy bits."""
    return find_alias(session, tensor).tensor


def find_alias(session: Session, tensor: Tensor) -> Alias:
    """The alias of a CUDA tensor: that of the last time if such a view was seen there before.

    Raises NoAlias, NoMemory.
    """
    try:
        address = tensor.data_ptr()
    except RuntimeError:
        raise NoAlias from None
    key = (address, tensor.size(), tensor.stride(), tensor.dtype, tensor.is_neg())
    aliases: dict[Any, Any] = session.spans.aliases
    alias: Alias | None = aliases.get(key)
    if alias is None or (alias.is_complex and tensor.is_conj()):
        with _unseen():
            alias = _make(session, tensor, address)
        if alias.ranges and not tensor.is_conj():
            if len(aliases) >= _ALIASES_MAX:
                aliases.clear()
            aliases[key] = alias
    if alias.pinned is not None:
        session.guards.drop(alias.pinned.base, alias.pinned.end)
    return alias


def _make(session: Session, tensor: Tensor, address: int) -> Alias:
    if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized:
        raise NoAlias
    if torch.is_inference_mode_enabled():
        with torch.inference_mode(mode=False):  # others may use it outside
            return _make(session, tensor, address)
    span = session.spans.find(address) if address else None
    if span is None and address:
        session.drain()  # allocated a moment ago
        span = session.spans.find(address)
    if span is None:
        if tensor.numel() and tensor._is_zerotensor():
            return Alias(factories.zeros(tensor.size(), dtype=tensor.dtype, device="cpu"), ())
        if tensor.numel():
            raise NoMemory(f"no memory of the virtual device at {address:#x}")
        size, stride = tensor.size(), tensor.stride()
        return Alias(factories.empty_strided(size, stride, dtype=tensor.dtype, device="cpu"), ())
    if span.storage is None:
        size = span.end - span.base
        data = (ctypes.c_char * size).from_address(span.base)
        span.storage = factories.frombuffer(data, dtype=torch.uint8).untyped_storage()
    alias = factories.empty(0, dtype=tensor.dtype, device="cpu")  # whatever the default is
    offset = (address - span.base) // tensor.itemsize
    alias.set_(span.storage, offset, tensor.size(), tensor.stride())
    if tensor.is_conj():
        alias = alias.conj()
    if tensor.is_neg():
        alias = alias._neg_view()
    pinned = span if span.place is Place.PINNED else None
    return Alias(alias, bytes_of(session, tensor), pinned, tensor.is_complex())


def bytes_of(session: Session, tensor: Tensor) -> Ranges:
    """The bytes of a dense or strided tensor; a view of too many runs is counted as coarse."""
    count = tensor.numel()
    if not count:
        return ()
    itemsize = tensor.itemsize
    address = tensor.data_ptr()
    if tensor.is_contiguous():
        return ((address, address + count * itemsize),)
    shape = tuple(tensor.size())
    strides = tuple(stride * itemsize for stride in tensor.stride())
    if is_coarse(shape, strides, itemsize):
        session.not_seen[COARSE] += 1
    return strided_ranges(address, shape, strides, itemsize)


# Of a sparse tensor, by its layout: what returns the tensors that it is stored in.
_STORED = {
    torch.sparse_coo: ("_indices", "_values"),
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}


def stored_parts(tensor: Tensor) -> list[Tensor]:
    """The dense tensors that hold a tensor's bytes: itself, unless it is sparse."""
    names = _STORED.get(tensor.layout)
    return [tensor] if names is None else [getattr(tensor, name)() for name in names]


def is_plain(cls: Any) -> bool:
    """Whether tensors of this class hold bytes themselves; DTensor and the like are made of others,
    and fake ones have none.
    """
    return bool(cls.__torch_dispatch__ is _PLAIN)


def parts_of(tensor: Tensor) -> list[tuple[str, Tensor]]:
    """The tensors that a tensor which is not plain is made of, by attribute."""
    flatten = getattr(tensor, "__tensor_flatten__", None)
    return [(name, getattr(tensor, name)) for name in flatten()[0]] if flatten is not None else []


def tensors_in(value: Any) -> list[Tensor]:
    """All tensors of an argument."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in tensors_in(item)]
    return []


# Torch takes lists apart by device itself, and copies between devices.
_OF_MANY_GPUS = ("_foreach_", "_amp_", "copy_")


def on_gpu_of(name: str, *values: Any) -> AbstractContextManager[object]:
    """What runs inside does so on the GPU of the first tensor of an operator, as torch's kernels
    do. Raises RuntimeError, as torch does, if its tensors are on several. name, values: of the
    operator and its arguments
    """
    gpus = list(dict.fromkeys(one.device.index for one in tensors_in(values) if one.is_cuda))
    if len(gpus) > 1 and not name.startswith(_OF_MANY_GPUS):
        one, other = sorted(gpus)[:2]
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"cuda:{one} and cuda:{other}!"
        )
    return torch.cuda.device(gpus[0]) if gpus and gpus[0] != current_gpu() else nullcontext()


def plainly_empty(
    size: Sequence[int],
    stride: Sequence[int] | None = None,
    *,
    dtype: Any = None,
    layout: Any = torch.strided,
    device: Any = None,
    pin_memory: Any = None,
    memory_format: Any = torch.contiguous_format,
) -> Tensor | None:
    """Takes what `empty` and `empty_strided` are called with; None if it is not all the usual."""
    is_usual = layout in (None, torch.strided) and not pin_memory
    if not is_usual or memory_format not in (None, torch.contiguous_format):
        return None
    if torch.are_deterministic_algorithms_enabled():  # torch fills new memory then
        return None
    if device is not None and torch.device(device).index:  # there is one: torch says so
        return None
    if stride is None:
        stride = [1]
        for extent in size[:0:-1]:
            stride.append(stride[-1] * max(extent, 1))
        stride = stride[::-1] if size else ()
    return new_tensor(tuple(size), tuple(stride), dtype or torch.get_default_dtype())


def plainly_or(native: Callable[..., Any]) -> Callable[..., Any]:
    """The quick way to make a tensor where it is enough, torch's kernel elsewhere."""

    def make(*args: Any, **kwargs: Any) -> Any:
        tensor = plainly_empty(*args, **kwargs)
        return native(*args, **kwargs) if tensor is None else tensor

    return make


def making(session: Session, make: Callable[..., Any]) -> Callable[..., Any]:
    """Around what makes a tensor on the device: whose memory it is from now on is noted. Threads
    that give memory back and take it are ordered by the allocator.
    """

    def made(*args: Any, **kwargs: Any) -> Any:
        tensor = make(*args, **kwargs)
        hand_out(session, tensor.untyped_storage())
        return tensor

    return made


def resizing(session: Session, resize: Callable[..., Any]) -> Callable[..., Any]:
    """Around what may give a tensor or a storage other memory: `aten::resize_`, by which `out=`
    tensors grow too, or a storage's own method. Memory that stays where it is stays whose it is.
    """

    def resized(*args: Any, **kwargs: Any) -> Any:
        given = next(one for one in args if isinstance(one, _WITH_MEMORY))
        storage = given.untyped_storage() if isinstance(given, torch.Tensor) else given
        before = storage.data_ptr() if storage.is_cuda else None
        result = resize(*args, **kwargs)
        if before is not None and storage.data_ptr() != before:
            hand_out(session, storage)
        return result

    return resized


def hand_out(session: Session, storage: torch.UntypedStorage) -> None:
    """The allocator gave the calling thread this memory, on the current stream."""
    if size := storage.nbytes():
        session.handed_out(storage.data_ptr(), size, session.stack())
