"""Downloads: when the host may read what a copy from the device writes."""

from __future__ import annotations

import torch

from .registry import N, observe, racy, silent


@racy(pair="download_read")
def download_read_at_once() -> None:
    """The pinned destination is read before the copy is known to have landed."""
    result = torch.ones(N, device="cuda")
    host = torch.zeros(N, pin_memory=True)
    host.copy_(result, non_blocking=True)
    observe("read", host.sum().item())
    torch.cuda.synchronize()


@silent(pair="download_read")
def download_read_after_event() -> None:
    """An event behind the copy is waited for before the destination is read."""
    result = torch.ones(N, device="cuda")
    host = torch.zeros(N, pin_memory=True)
    host.copy_(result, non_blocking=True)
    landed = torch.cuda.Event()
    landed.record()
    landed.synchronize()
    observe("read", host.sum().item())


@silent(pair="download_read")
def download_read_after_stream_synchronize() -> None:
    """The stream of the copy is synchronised before the destination is read."""
    result = torch.ones(N, device="cuda")
    host = torch.zeros(N, pin_memory=True)
    host.copy_(result, non_blocking=True)
    torch.cuda.current_stream().synchronize()
    observe("read", host.sum().item())


@silent(pair="download_read")
def download_blocking() -> None:
    """Without non_blocking torch synchronises the stream after the copy (Copy.cu,
    memcpy_and_sync).
    """
    result = torch.ones(N, device="cuda")
    host = torch.zeros(N, pin_memory=True)
    host.copy_(result)
    observe("read", host.sum().item())


@silent(pair="download_read")
def download_to_pageable() -> None:
    """A copy into pageable memory returns only once it has completed, non_blocking or not.

    CUDA Runtime API, "API synchronization behavior": device to pageable host memory.
    """
    result = torch.ones(N, device="cuda")
    host = torch.zeros(N)
    host.copy_(result, non_blocking=True)
    observe("read", host.sum().item())


@racy(pair="download_to_cpu")
def to_cpu_non_blocking_read() -> None:
    """`.to("cpu", non_blocking=True)` allocates pinned memory and returns before it is filled.

    TensorConversions.cpp, _to_copy: `pin_out = non_blocking && self.is_cuda() &&
    options.device().is_cpu()`. The allocator hands out a block that held zeros, which is what an
    early read sees.
    """
    result = torch.ones(N, device="cuda")
    torch.zeros(N, pin_memory=True)
    host = result.to("cpu", non_blocking=True)
    observe("read", host.sum().item())
    torch.cuda.synchronize()


@silent(pair="download_to_cpu")
def to_cpu_non_blocking_synchronised() -> None:
    """The device is synchronised before what `.to("cpu", non_blocking=True)` returned is read."""
    result = torch.ones(N, device="cuda")
    host = result.to("cpu", non_blocking=True)
    torch.cuda.synchronize()
    observe("read", host.sum().item())


@silent(pair="download_to_cpu")
def to_cpu_blocking() -> None:
    """`.cpu()` synchronises the current stream, on which the tensor was made."""
    result = torch.ones(N, device="cuda")
    observe("read", result.cpu().sum().item())


@racy(pair="download_cast")
def download_cast_read() -> None:
    """A non-blocking download that changes the dtype converts on the device and lands late all the
    same.
    """
    result = torch.ones(N, dtype=torch.float64, device="cuda")
    host = torch.zeros(N, pin_memory=True)
    host.copy_(result, non_blocking=True)
    observe("read", host.sum().item())
    torch.cuda.synchronize()


@silent(pair="download_cast")
def download_cast_synchronised() -> None:
    """The stream is synchronised before the converted values are read."""
    result = torch.ones(N, dtype=torch.float64, device="cuda")
    host = torch.zeros(N, pin_memory=True)
    host.copy_(result, non_blocking=True)
    torch.cuda.current_stream().synchronize()
    observe("read", host.sum().item())


@racy(pair="download_strided")
def download_to_row_read() -> None:
    """A row of a pinned table is contiguous: the copy lands in it at any later time."""
    result = torch.ones(32, device="cuda")
    table = torch.zeros(32, 32, pin_memory=True)
    table[3].copy_(result, non_blocking=True)
    observe("read", table[3].sum().item())
    torch.cuda.synchronize()


@silent(pair="download_strided")
def download_to_column_read() -> None:
    """A column is filled by the host from a pageable temporary, whose copy has completed at return.

    Copy.cu, copy_kernel_cuda: `at::empty_like(dst)` is not pinned.
    """
    result = torch.ones(32, device="cuda")
    table = torch.zeros(32, 32, pin_memory=True)
    table[:, 3].copy_(result, non_blocking=True)
    observe("read", table[:, 3].sum().item())


@racy(pair="download_wrong_sync")
def download_side_item_on_default() -> None:
    """`.item()` waits for the current stream only; the download is on another one."""
    result = torch.ones(N, device="cuda")
    other = torch.ones((), device="cuda")
    host = torch.zeros(N, pin_memory=True)
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        host.copy_(result, non_blocking=True)
    other.item()
    observe("read", host.sum().item())
    torch.cuda.synchronize()


@silent(pair="download_wrong_sync")
def download_item_on_same_stream() -> None:
    """`.item()` on the stream of the download waits for everything issued to it before."""
    result = torch.ones(N, device="cuda")
    other = torch.ones((), device="cuda")
    host = torch.zeros(N, pin_memory=True)
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        host.copy_(result, non_blocking=True)
        other.item()
    observe("read", host.sum().item())


@racy(pair="download_source_overwritten")
def download_source_overwritten() -> None:
    """The default stream overwrites the buffer that a copy stream is still reading."""
    result = torch.ones(N, device="cuda")
    host = torch.zeros(N, pin_memory=True)
    copies = torch.cuda.Stream()
    copies.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(copies):
        host.copy_(result, non_blocking=True)
    result.fill_(2)
    torch.cuda.synchronize()
    observe("read", host.sum().item())


@silent(pair="download_source_overwritten")
def download_source_overwritten_after_wait() -> None:
    """The default stream waits for the copy stream before it overwrites the buffer."""
    result = torch.ones(N, device="cuda")
    host = torch.zeros(N, pin_memory=True)
    copies = torch.cuda.Stream()
    copies.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(copies):
        host.copy_(result, non_blocking=True)
    torch.cuda.current_stream().wait_stream(copies)
    result.fill_(2)
    torch.cuda.synchronize()
    observe("read", host.sum().item())


@racy(pair="download_rows")
def download_row_in_flight_read() -> None:
    """The event covers the first row; the second row is read while its copy is in flight."""
    rows = torch.ones(2, N, device="cuda")
    host = torch.zeros(2, N, pin_memory=True)
    first = torch.cuda.Event()
    host[0].copy_(rows[0], non_blocking=True)
    first.record()
    host[1].copy_(rows[1], non_blocking=True)
    first.synchronize()
    observe("read", host[1].sum().item())
    torch.cuda.synchronize()


@silent(pair="download_rows")
def download_row_landed_read() -> None:
    """The event covers the first row, which is the one read while the second is in flight."""
    rows = torch.ones(2, N, device="cuda")
    host = torch.zeros(2, N, pin_memory=True)
    first = torch.cuda.Event()
    host[0].copy_(rows[0], non_blocking=True)
    first.record()
    host[1].copy_(rows[1], non_blocking=True)
    first.synchronize()
    observe("read", host[0].sum().item())
    torch.cuda.synchronize()


@silent(pair="download_rows")
def download_fifo_last_event() -> None:
    """One stream runs its copies in order: the event behind the last covers them all."""
    rows = torch.ones(4, N, device="cuda")
    host = torch.zeros(4, N, pin_memory=True)
    for row in range(4):
        host[row].copy_(rows[row], non_blocking=True)
    last = torch.cuda.Event()
    last.record()
    last.synchronize()
    observe("read", host.sum().item())


@racy(pair="download_slot")
def download_one_slot() -> None:
    """The result of step n is read from a slot into which the download of step n + 1 is already
    under way.
    """
    value = torch.zeros(N, device="cuda")
    slot = torch.zeros(N, pin_memory=True)
    seen = []
    landed = None
    for _ in range(3):
        value.add_(1)
        previous = landed
        slot.copy_(value, non_blocking=True)
        landed = torch.cuda.Event()
        landed.record()
        if previous is not None:
            previous.synchronize()
            seen.append(slot[0].item())
    torch.cuda.synchronize()
    observe("seen", seen)


@silent(pair="download_slot")
def download_two_slots() -> None:
    """Two slots take turns; each is read after its own event and before it is written again."""
    value = torch.zeros(N, device="cuda")
    slots = torch.zeros(2, N, pin_memory=True)
    landed = [torch.cuda.Event(), torch.cuda.Event()]
    seen = []
    for step in range(4):
        value.add_(1)
        slots[step % 2].copy_(value, non_blocking=True)
        landed[step % 2].record()
        if step > 0:
            landed[(step - 1) % 2].synchronize()
            seen.append(slots[(step - 1) % 2][0].item())
    torch.cuda.synchronize()
    observe("seen", seen)


@racy(pair="download_host_copy")
def host_copy_of_pending_download() -> None:
    """A copy between two host tensors is made by the host at once, before its source has landed."""
    result = torch.ones(N, device="cuda")
    landing = torch.zeros(N, pin_memory=True)
    kept = torch.zeros(N, pin_memory=True)
    landing.copy_(result, non_blocking=True)
    kept.copy_(landing, non_blocking=True)
    torch.cuda.synchronize()
    observe("kept", kept.sum().item())


@silent(pair="download_host_copy")
def host_copy_of_landed_download() -> None:
    """The download is waited for before the host copies it on."""
    result = torch.ones(N, device="cuda")
    landing = torch.zeros(N, pin_memory=True)
    kept = torch.zeros(N, pin_memory=True)
    landing.copy_(result, non_blocking=True)
    torch.cuda.synchronize()
    kept.copy_(landing, non_blocking=True)
    observe("kept", kept.sum().item())


@racy(pair="scalar_argument")
def scalar_argument_before_landing() -> None:
    """A pinned tensor of no dimensions is read by the host as an argument, before its download
    landed.
    """
    count = torch.full((), 3.0, device="cuda")
    count_cpu = torch.zeros((), pin_memory=True)
    target = torch.ones(N, device="cuda")
    count_cpu.copy_(count, non_blocking=True)
    target.mul_(count_cpu)
    torch.cuda.synchronize()
    observe("scaled", target.sum().item())


@silent(pair="scalar_argument")
def scalar_argument_on_device() -> None:
    """The factor stays on the device, so the stream orders its use."""
    count = torch.full((), 3.0, device="cuda")
    target = torch.ones(N, device="cuda")
    target.mul_(count)
    torch.cuda.synchronize()
    observe("scaled", target.sum().item())


def _download_with_flags() -> torch.Tensor:
    """A payload between two elements that say 1 when they have landed."""
    result = torch.full((N,), 3.0, device="cuda")
    result[0] = result[-1] = 1.0
    host = torch.zeros(N, pin_memory=True)
    host.copy_(result, non_blocking=True)
    return host


@racy(pair="download_flags")
def flag_behind_payload() -> None:
    """The last element says that the payload before it has landed, or else the host waits: but one
    copy lands in no order of its bytes.
    """
    host = _download_with_flags()
    if not host[-1].item():
        torch.cuda.synchronize()
    observe("payload", host[1:-1].sum().item())
    torch.cuda.synchronize()


@racy(pair="download_flags")
def flag_before_payload() -> None:
    """The first element is taken for a header that lands with what follows it."""
    host = _download_with_flags()
    if not host[0].item():
        torch.cuda.synchronize()
    observe("payload", host[1:-1].sum().item())
    torch.cuda.synchronize()


@silent(pair="download_flags")
def flag_after_wait() -> None:
    """The copy is waited for whatever the flags say."""
    host = _download_with_flags()
    torch.cuda.synchronize()
    observe("flags", (host[0].item(), host[-1].item()))
    observe("payload", host[1:-1].sum().item())
