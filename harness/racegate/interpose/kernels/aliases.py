"""CPU tensors over the bytes of CUDA tensors, and the bytes that tensors touch."""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from racegate.interpose.device.session import Session
from racegate.interpose.device.spans import Place
from racegate.interpose.order.ranges import Ranges, is_coarse, strided_ranges

Tensor = Any  # torch is untyped here


def alias_of(session: Session, tensor: Tensor) -> Tensor:
    """A CPU tensor over the same bytes, with the same shape, strides, dtype and lazy bits."""
    address = tensor.data_ptr()
    span = session.spans.find(address) if address else None
    if span is None and address:
        session.drain()  # allocated a moment ago
        span = session.spans.find(address)
    if span is None:
        if tensor.numel() and tensor._is_zerotensor():
            return torch.zeros(tensor.size(), dtype=tensor.dtype)
        if tensor.numel():
            raise RuntimeError(f"racegate: no memory of the virtual device at {address:#x}")
        return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype)
    if span.place is Place.PINNED:
        session.guards.open(span.base, span.end)
    if span.storage is None:
        size = span.end - span.base
        data = (ctypes.c_char * size).from_address(span.base)
        span.storage = torch.frombuffer(data, dtype=torch.uint8).untyped_storage()
    alias = torch.empty(0, dtype=tensor.dtype)
    offset = (address - span.base) // tensor.itemsize
    alias.set_(span.storage, offset, tensor.size(), tensor.stride())
    if tensor.is_conj():
        alias = alias.conj()
    if tensor.is_neg():
        alias = alias._neg_view()
    return alias


def bytes_of(session: Session, tensor: Tensor) -> Ranges:
    """The bytes of a dense or strided tensor; a view of too many runs is counted as coarse."""
    if not tensor.numel():
        return ()
    itemsize = tensor.itemsize
    if tensor.is_contiguous():
        address = tensor.data_ptr()
        return ((address, address + tensor.numel() * itemsize),)
    shape = tuple(tensor.size())
    strides = tuple(stride * itemsize for stride in tensor.stride())
    if is_coarse(shape, strides, itemsize):
        session.not_seen["views taken as a whole (too many separate runs)"] += 1
    return strided_ranges(tensor.data_ptr(), shape, strides, itemsize)


def tensors_in(value: Any) -> list[Tensor]:
    """All tensors of an argument."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in tensors_in(item)]
    return []
