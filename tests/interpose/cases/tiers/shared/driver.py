"""Calls of the driver and the runtime that engines make by hand, found as they find them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch

DRIVER = ctypes.CDLL("libcuda.so.1")
STREAM, DURING_CALL, ANY = 1, 2, 3  # when the source of a copy may be read
MAPPED_BYTES = 2 << 20


class _Attributes(ctypes.Structure):
    """`CUmemcpyAttributes`: the order, two hints for places, flags."""

    _fields_ = (("order", ctypes.c_int), ("rest", ctypes.c_int * 5))


def entry_point(name: str, version: int) -> Any:
    """An entry point as `cuGetProcAddress` gives it to who was built for this CUDA."""
    found, status = ctypes.c_void_p(), ctypes.c_int(-1)
    ask = ctypes.c_void_p()
    code = DRIVER.cuGetProcAddress_v2(b"cuGetProcAddress", ctypes.byref(ask), 12000, 0, None)
    assert code == 0
    words = (ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64, ctypes.c_void_p)
    get = ctypes.CFUNCTYPE(ctypes.c_int, *words)(ask.value)
    assert get(name.encode(), ctypes.addressof(found), version, 0, ctypes.addressof(status)) == 0
    assert (found.value is not None, status.value) == (True, 0)
    return found.value


def copy_batch(
    pairs: Sequence[tuple[torch.Tensor, torch.Tensor]], stream: torch.cuda.Stream, order: int
) -> None:
    """(target, source) each, by one call of `cuMemcpyBatchAsync` as CUDA 12.8 has it."""
    count, size = ctypes.c_size_t(len(pairs)), ctypes.c_size_t
    addresses = ctypes.c_uint64 * len(pairs)
    to = addresses(*(target.data_ptr() for target, _ in pairs))
    source = addresses(*(one.data_ptr() for _, one in pairs))
    sizes = (size * len(pairs))(*(target.nbytes for target, _ in pairs))
    first, failed, attributes = size(0), size(0), _Attributes(order)
    where = [ctypes.c_void_p] * 3
    kinds = (*where, size, *where[:2], size, *where[:2])
    call = ctypes.CFUNCTYPE(ctypes.c_int, *kinds)(entry_point("cuMemcpyBatchAsync", 12080))
    made = [ctypes.addressof(one) for one in (to, source, sizes, attributes, first, failed)]
    code = call(*made[:3], count.value, *made[3:5], 1, made[5], stream.cuda_stream)
    assert code == 0, code


def tensor_at(address: int, count: int) -> torch.Tensor:
    """A tensor of so many floats over memory of the device."""

    interface = {"shape": (count,), "typestr": "<f4", "data": (address, False), "version": 2}
    return torch.as_tensor(SimpleNamespace(__cuda_array_interface__=interface), device="cuda")


def map_memory() -> tuple[int, int]:
    """(address, handle) of memory that is created and mapped into reserved addresses."""
    address, handle, size = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_size_t(MAPPED_BYTES)
    nothing = ctypes.c_size_t(0)
    assert not DRIVER.cuMemAddressReserve(ctypes.byref(address), size, nothing, nothing, nothing)
    assert not DRIVER.cuMemCreate(ctypes.byref(handle), size, None, nothing)
    assert not DRIVER.cuMemMap(address, size, nothing, handle, nothing)
    assert not DRIVER.cuMemSetAccess(address, size, None, nothing)
    return address.value, handle.value


def unmap_memory(address: int, handle: int) -> None:
    """Takes it out, and gives it back."""
    size = ctypes.c_size_t(MAPPED_BYTES)
    assert not DRIVER.cuMemUnmap(ctypes.c_uint64(address), size)
    assert not DRIVER.cuMemRelease(ctypes.c_uint64(handle))
