"""Zero copy: kernels that read or write pinned host memory by its device address.

Such a use is no copy that torch sees: neither the host allocator nor a stream knows that the memory
is in use.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .registry import N, observe, racy, silent


class _DeviceView:
    """Pinned float32 memory under its device address: the same one, by unified virtual
    addressing.
    """

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self.__cuda_array_interface__ = {
            "shape": tuple(tensor.shape),
            "strides": None,
            "typestr": "<f4",
            "data": (tensor.data_ptr(), False),
            "version": 3,
        }


def _mapped(tensor: torch.Tensor) -> torch.Tensor:
    """A CUDA tensor over the bytes of a contiguous pinned one."""
    return torch.as_tensor(_DeviceView(tensor), device="cuda")


@triton.jit
def _double(source, target, count, block: tl.constexpr):
    """target[i] = 2 * source[i] for i < count."""
    index = tl.program_id(0) * block + tl.arange(0, block)
    inside = index < count
    tl.store(target + index, 2 * tl.load(source + index, mask=inside), mask=inside)


def _launch(source: torch.Tensor, target: torch.Tensor) -> None:
    _double[(triton.cdiv(source.numel(), 256),)](source, target, source.numel(), block=256)


@racy(pair="mapped_input")
def mapped_input_rewritten() -> None:
    """The host rewrites pinned memory that a kernel may still be reading over the bus."""
    host, result = torch.ones(N, pin_memory=True), torch.zeros(N, device="cuda")
    mapped = _mapped(host)
    torch.mul(mapped, 2, out=result)
    host.fill_(5)
    torch.cuda.synchronize()
    observe("result", result.sum().item())


@silent(pair="mapped_input")
def mapped_input_rewritten_after_wait() -> None:
    """The stream of the kernel is synchronised before the host rewrites what it reads."""
    host, result = torch.ones(N, pin_memory=True), torch.zeros(N, device="cuda")
    mapped = _mapped(host)
    torch.mul(mapped, 2, out=result)
    torch.cuda.current_stream().synchronize()
    host.fill_(5)
    observe("result", result.sum().item())


@racy(pair="mapped_output")
def mapped_output_read() -> None:
    """The host reads pinned memory that a kernel may not have written yet."""
    host, source = torch.zeros(N, pin_memory=True), torch.ones(N, device="cuda")
    mapped = _mapped(host)
    torch.mul(source, 2, out=mapped)
    observe("read", host.sum().item())
    torch.cuda.synchronize()


@silent(pair="mapped_output")
def mapped_output_read_after_event() -> None:
    """The host reads what the kernel wrote after an event behind it."""
    host, source = torch.zeros(N, pin_memory=True), torch.ones(N, device="cuda")
    mapped = _mapped(host)
    torch.mul(source, 2, out=mapped)
    written = torch.cuda.Event()
    written.record()
    written.synchronize()
    observe("read", host.sum().item())


@racy(pair="mapped_temporary")
def mapped_temporary_dies() -> None:
    """The pinned temporary dies under a kernel that reads it: the host allocator hands its block
    out at once.

    Only `copy_` tells CachingHostAllocator of the stream; a kernel on the mapped address does not.
    """
    result = torch.zeros(N, device="cuda")
    torch.mul(_mapped(torch.ones(N, pin_memory=True)), 2, out=result)
    other = torch.full((N,), 5.0, pin_memory=True)
    torch.cuda.synchronize()
    observe("result", result.sum().item())
    observe("other", other.sum().item())


@silent(pair="mapped_temporary")
def mapped_temporary_kept() -> None:
    """The pinned tensor is kept until the device was synchronised."""
    result = torch.zeros(N, device="cuda")
    host = torch.ones(N, pin_memory=True)
    torch.mul(_mapped(host), 2, out=result)
    other = torch.full((N,), 5.0, pin_memory=True)
    torch.cuda.synchronize()
    del host
    observe("result", result.sum().item())
    observe("other", other.sum().item())


@racy(pair="mapped_and_copied")
def mapped_write_beside_download() -> None:
    """A kernel writes pinned memory on one stream while a download lands in it from another."""
    host, source = torch.zeros(N, pin_memory=True), torch.ones(N, device="cuda")
    mapped = _mapped(host)
    torch.cuda.synchronize()
    copies = torch.cuda.Stream()
    with torch.cuda.stream(copies):
        host.copy_(source, non_blocking=True)
    mapped.fill_(5)
    torch.cuda.synchronize()
    observe("read", host.sum().item())


@silent(pair="mapped_and_copied")
def mapped_write_after_download() -> None:
    """The kernel's stream waits for the copy stream; address by address the memory has one writer
    at a time.
    """
    host, source = torch.zeros(N, pin_memory=True), torch.ones(N, device="cuda")
    mapped = _mapped(host)
    torch.cuda.synchronize()
    copies = torch.cuda.Stream()
    with torch.cuda.stream(copies):
        host.copy_(source, non_blocking=True)
    torch.cuda.current_stream().wait_stream(copies)
    mapped.fill_(5)
    torch.cuda.synchronize()
    observe("read", host.sum().item())


@racy(pair="triton_pinned")
def triton_reads_pinned_rewritten() -> None:
    """A Triton kernel is given a pinned tensor; the host rewrites it after the launch."""
    host, result = torch.ones(N, pin_memory=True), torch.zeros(N, device="cuda")
    _launch(host, result)
    host.fill_(5)
    torch.cuda.synchronize()
    observe("result", result.sum().item())


@silent(pair="triton_pinned")
def triton_reads_pinned_waited_for() -> None:
    """The host waits for the launch before it rewrites the pinned tensor."""
    host, result = torch.ones(N, pin_memory=True), torch.zeros(N, device="cuda")
    _launch(host, result)
    torch.cuda.current_stream().synchronize()
    host.fill_(5)
    observe("result", result.sum().item())


@racy(pair="triton_output")
def triton_writes_pinned_read() -> None:
    """A Triton kernel stores into pinned memory and the host reads it at once."""
    host, source = torch.zeros(N, pin_memory=True), torch.ones(N, device="cuda")
    _launch(source, host)
    observe("read", host.sum().item())
    torch.cuda.synchronize()


@silent(pair="triton_output")
def triton_writes_pinned_waited_for() -> None:
    """The host reads what the Triton kernel stored after an event behind the launch."""
    host, source = torch.zeros(N, pin_memory=True), torch.ones(N, device="cuda")
    _launch(source, host)
    written = torch.cuda.Event()
    written.record()
    written.synchronize()
    observe("read", host.sum().item())


@racy(pair="triton_slices")
def triton_overlapping_slices() -> None:
    """Two Triton launches on two streams store into ranges that share the middle element."""
    first, second = torch.ones(N // 2 + 1, device="cuda"), torch.full((N // 2,), 2.0, device="cuda")
    table = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        _launch(first, table)
    with torch.cuda.stream(torch.cuda.Stream()):
        _launch(second, table[N // 2 :])
    torch.cuda.synchronize()
    observe("middle", table[N // 2 - 1 : N // 2 + 1].tolist())


@silent(pair="triton_slices")
def triton_masked_slices() -> None:
    """Two Triton launches on two streams store, as their masks say, into halves that do not
    meet.
    """
    first, second = torch.ones(N // 2 - 8, device="cuda"), torch.full((N // 2,), 2.0, device="cuda")
    table = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        _launch(first, table)
    with torch.cuda.stream(torch.cuda.Stream()):
        _launch(second, table[N // 2 - 8 :])
    torch.cuda.synchronize()
    observe("middle", table[N // 2 - 9 : N // 2 - 7].tolist())


@triton.autotune([triton.Config({"block": 128}), triton.Config({"block": 256})], key=["count"])
@triton.jit
def _add_one(target, count, block: tl.constexpr):
    """target[i] += 1 for i < count: run once more than asked for, it is wrong."""
    index = tl.program_id(0) * block + tl.arange(0, block)
    inside = index < count
    tl.store(target + index, 1 + tl.load(target + index, mask=inside), mask=inside)


def _launch_tuned(target: torch.Tensor) -> None:
    grid = lambda meta: (triton.cdiv(target.numel(), meta["block"]),)  # noqa: E731
    _add_one[grid](target, target.numel())


@racy(pair="triton_autotuned")
def triton_autotuned_read_at_once() -> None:
    """An autotuned kernel changes pinned memory in place and the host reads it at once."""
    host = torch.zeros(N, pin_memory=True)
    _launch_tuned(host)
    torch.cuda.synchronize()
    host.zero_()
    _launch_tuned(host)
    observe("read", host.sum().item())
    torch.cuda.synchronize()


@silent(pair="triton_autotuned")
def triton_autotuned_waited_for() -> None:
    """The host reads what the autotuned kernel changed after it has waited; it ran as often as it
    was launched once it was tuned.
    """
    host = torch.zeros(N, pin_memory=True)
    _launch_tuned(host)
    torch.cuda.synchronize()
    host.zero_()
    _launch_tuned(host)
    torch.cuda.synchronize()
    observe("read", host.sum().item())
