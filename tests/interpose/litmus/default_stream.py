"""The legacy default stream: with which streams it is ordered by CUDA's own rule."""

from __future__ import annotations

import ctypes

import torch

from .registry import N, observe, racy, silent


def _blocking_stream() -> torch.cuda.ExternalStream:
    """A stream of cudaStreamCreate, which synchronises with the legacy default stream."""
    handle = ctypes.c_size_t()
    torch.cuda.check_error(torch.cuda.cudart().cudaStreamCreate(ctypes.addressof(handle)))
    return torch.cuda.ExternalStream(handle.value)


@racy(pair="legacy_default")
def pool_stream_beside_default() -> None:
    """Streams of torch are non-blocking: the legacy default stream does not synchronise with them.

    c10/cuda/CUDAStream.cpp: `kDefaultFlags = cudaStreamNonBlocking`.
    """
    shared = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        shared.fill_(1)
    total = shared.sum()
    torch.cuda.synchronize()
    observe("total", total.item())


@silent(pair="legacy_default")
def blocking_stream_beside_default() -> None:
    """A stream of cudaStreamCreate and the legacy default stream wait for each other by CUDA's own
    rule.

    CUDA C++ Programming Guide, "Implicit synchronization" and "Default stream".
    """
    shared = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    side = _blocking_stream()
    with torch.cuda.stream(side):
        shared.fill_(1)
    total = shared.sum()
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaStreamDestroy(side.cuda_stream)
    observe("total", total.item())


@racy(pair="legacy_default_between")
def blocking_stream_beside_pool_stream() -> None:
    """The implicit order is with the default stream only: a pool stream and a blocking stream have
    none.
    """
    shared = torch.zeros(N, device="cuda")
    seen = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    blocking, pooled = _blocking_stream(), torch.cuda.Stream()
    with torch.cuda.stream(blocking):
        shared.fill_(1)
    with torch.cuda.stream(pooled):
        seen.copy_(shared)
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaStreamDestroy(blocking.cuda_stream)
    observe("seen", seen.sum().item())


@silent(pair="legacy_default_between")
def default_stream_work_orders_blocking_streams() -> None:
    """Work on the legacy default stream stands between two blocking streams and orders them."""
    shared = torch.zeros(N, device="cuda")
    seen = torch.zeros(N, device="cuda")
    other = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    first, second = _blocking_stream(), _blocking_stream()
    with torch.cuda.stream(first):
        shared.fill_(1)
    other.fill_(5)
    with torch.cuda.stream(second):
        seen.copy_(shared)
    torch.cuda.synchronize()
    for stream in (first, second):
        torch.cuda.cudart().cudaStreamDestroy(stream.cuda_stream)
    observe("seen", seen.sum().item())
