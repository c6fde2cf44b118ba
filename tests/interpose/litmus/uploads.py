"""Uploads: who may touch the host source of a copy to the device, and when."""

from __future__ import annotations

import numpy as np
import torch

from .registry import N, observe, racy, silent


@racy(pair="upload_source")
def upload_source_rewritten() -> None:
    """The pinned source is rewritten while the upload may still be reading it."""
    source = torch.ones(N, pin_memory=True)
    target = source.to("cuda", non_blocking=True)
    source.fill_(2)
    torch.cuda.synchronize()
    observe("uploaded", target.sum().item())


@silent(pair="upload_source")
def upload_source_kept_until_event() -> None:
    """An event behind the upload is waited for before the source is rewritten."""
    source = torch.ones(N, pin_memory=True)
    target = source.to("cuda", non_blocking=True)
    done = torch.cuda.Event()
    done.record()
    done.synchronize()
    source.fill_(2)
    torch.cuda.synchronize()
    observe("uploaded", target.sum().item())


@silent(pair="upload_source")
def upload_blocking() -> None:
    """Without non_blocking torch synchronises the stream after the copy (Copy.cu,
    memcpy_and_sync).
    """
    source = torch.ones(N, pin_memory=True)
    target = source.to("cuda")
    source.fill_(2)
    observe("uploaded", target.sum().item())


@silent(pair="upload_source")
def upload_from_pageable() -> None:
    """The source is pageable: CUDA has staged it when the call returns, non_blocking or not.

    CUDA Runtime API, "API synchronization behavior": pageable memory is copied to a staging buffer
    first.
    """
    source = torch.ones(N)
    target = source.to("cuda", non_blocking=True)
    source.fill_(2)
    torch.cuda.synchronize()
    observe("uploaded", target.sum().item())


@racy(pair="upload_event")
def upload_event_before_copy() -> None:
    """The event that guards the source was recorded before the copy, so it says nothing about
    it.
    """
    source = torch.ones(N, pin_memory=True)
    target = torch.zeros(N, device="cuda")
    done = torch.cuda.Event()
    done.record()
    target.copy_(source, non_blocking=True)
    done.synchronize()
    source.fill_(2)
    torch.cuda.synchronize()
    observe("uploaded", target.sum().item())


@silent(pair="upload_event")
def upload_event_after_copy() -> None:
    """The event that guards the source is recorded after the copy."""
    source = torch.ones(N, pin_memory=True)
    target = torch.zeros(N, device="cuda")
    done = torch.cuda.Event()
    target.copy_(source, non_blocking=True)
    done.record()
    done.synchronize()
    source.fill_(2)
    torch.cuda.synchronize()
    observe("uploaded", target.sum().item())


@racy(pair="upload_pinned_again")
def upload_pinned_again_rewritten() -> None:
    """`pin_memory()` of a pinned tensor returns itself, so the source that is rewritten is the one
    in flight.
    """
    table = torch.ones(N, pin_memory=True)
    target = table.pin_memory().to("cuda", non_blocking=True)
    table.fill_(2)
    torch.cuda.synchronize()
    observe("uploaded", target.sum().item())


@silent(pair="upload_pinned_again")
def upload_pinned_copy_rewritten() -> None:
    """`pin_memory()` of a pageable tensor is a copy, which keeps its bytes until the upload has
    read them.
    """
    table = torch.ones(N)
    target = table.pin_memory().to("cuda", non_blocking=True)
    table.fill_(2)
    torch.cuda.synchronize()
    observe("uploaded", target.sum().item())


@racy(pair="upload_halves")
def upload_half_overlaps_rewrite() -> None:
    """The rewritten slice begins one element before the end of the slice in flight."""
    source = torch.ones(N, pin_memory=True)
    target = source[: N // 2].to("cuda", non_blocking=True)
    source[N // 2 - 1 :].fill_(2)
    torch.cuda.synchronize()
    observe("uploaded", target.sum().item())


@silent(pair="upload_halves")
def upload_half_beside_rewrite() -> None:
    """The slice in flight and the rewritten slice share no byte."""
    source = torch.ones(N, pin_memory=True)
    target = source[: N // 2].to("cuda", non_blocking=True)
    source[N // 2 :].fill_(2)
    torch.cuda.synchronize()
    observe("uploaded", target.sum().item())


@racy(pair="upload_strided")
def upload_row_rewritten() -> None:
    """A row is contiguous, so its pinned bytes are read by the copy engine at any later time."""
    table = torch.ones(32, 32, pin_memory=True)
    target = table[3].to("cuda", non_blocking=True)
    table[3].fill_(2)
    torch.cuda.synchronize()
    observe("uploaded", target.sum().item())


@silent(pair="upload_strided")
def upload_column_rewritten() -> None:
    """A column is gathered into pageable memory on the host before the call returns.

    Copy.cu, copy_kernel_cuda: a copy that is not contiguous takes `src.contiguous()` on the host
    first.
    """
    table = torch.ones(32, 32, pin_memory=True)
    target = table[:, 3].to("cuda", non_blocking=True)
    table[:, 3].fill_(2)
    torch.cuda.synchronize()
    observe("uploaded", target.sum().item())


@racy(pair="upload_cast")
def upload_cast_rewritten() -> None:
    """A non-blocking copy that changes the dtype converts on the device: the pinned source is read
    late.

    Copy.cu, copy_kernel_cuda: `conversion_device = non_blocking ? kCUDA : kCPU`.
    """
    source = torch.ones(N, dtype=torch.float64, pin_memory=True)
    target = torch.zeros(N, device="cuda")
    target.copy_(source, non_blocking=True)
    source.fill_(2)
    torch.cuda.synchronize()
    observe("uploaded", target.sum().item())


@silent(pair="upload_cast")
def upload_cast_blocking() -> None:
    """A blocking copy that changes the dtype converts on the host and then waits for the copy."""
    source = torch.ones(N, dtype=torch.float64, pin_memory=True)
    target = torch.zeros(N, device="cuda")
    target.copy_(source)
    source.fill_(2)
    torch.cuda.synchronize()
    observe("uploaded", target.sum().item())


def _registered_ones() -> np.ndarray:
    array = np.ones(64 * N, dtype=np.float32)
    torch.cuda.check_error(torch.cuda.cudart().cudaHostRegister(array.ctypes.data, array.nbytes, 0))
    return array


@racy(pair="upload_registered")
def upload_registered_rewritten() -> None:
    """NumPy memory under cudaHostRegister is pinned: the upload reads it at any later time."""
    array = _registered_ones()
    target = torch.from_numpy(array).to("cuda", non_blocking=True)
    array[:] = 2
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaHostUnregister(array.ctypes.data)
    observe("uploaded", target.sum().item())


@silent(pair="upload_registered")
def upload_registered_synchronised() -> None:
    """The stream is synchronised before the registered memory is rewritten."""
    array = _registered_ones()
    target = torch.from_numpy(array).to("cuda", non_blocking=True)
    torch.cuda.current_stream().synchronize()
    array[:] = 2
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaHostUnregister(array.ctypes.data)
    observe("uploaded", target.sum().item())


@silent(pair="upload_registered")
def upload_unregistered_rewritten() -> None:
    """After cudaHostUnregister the array is pageable again and is staged before the call
    returns.
    """
    array = _registered_ones()
    torch.cuda.cudart().cudaHostUnregister(array.ctypes.data)
    target = torch.from_numpy(array).to("cuda", non_blocking=True)
    array[:] = 2
    torch.cuda.synchronize()
    observe("uploaded", target.sum().item())


@racy(pair="upload_scalar")
def upload_one_element_rewritten() -> None:
    """A learning rate is kept in one pinned element and changed while its upload is in flight."""
    rate = torch.full((1,), 0.5, pin_memory=True)
    rate_gpu = torch.zeros(1, device="cuda")
    weight = torch.ones(N, device="cuda")
    for _ in range(2):
        rate_gpu.copy_(rate, non_blocking=True)
        weight.mul_(rate_gpu)
        rate.mul_(0.5)
    torch.cuda.synchronize()
    observe("weight", weight[0].item())


@silent(pair="upload_scalar")
def scalar_argument_rewritten() -> None:
    """A host tensor of no dimensions is an argument of the kernel: torch reads it when it launches.

    TensorIterator takes CPU scalars by value (`iter.scalar_value`), so no device reads the pinned
    element.
    """
    rate = torch.full((), 0.5, pin_memory=True)
    weight = torch.ones(N, device="cuda")
    for _ in range(2):
        weight.mul_(rate)
        rate.mul_(0.5)
    torch.cuda.synchronize()
    observe("weight", weight[0].item())


@silent(pair="upload_scalar")
def upload_from_list() -> None:
    """`torch.tensor(list, device="cuda")` fills pageable memory and copies it blocking."""
    rates = [0.5, 0.25]
    first = torch.tensor(rates, device="cuda")
    rates[0] = 0.0
    observe("first", first.tolist())
