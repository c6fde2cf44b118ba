"""Streams: which of them are ordered, by whom, and which only look so."""

from __future__ import annotations

import torch

from .registry import N, observe, racy, silent


@racy(pair="consumer_stream")
def missing_wait_stream() -> None:
    """A side stream reads what the default stream has just been asked to write; nothing orders
    them.
    """
    shared = torch.zeros(N, device="cuda")
    seen = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    shared.fill_(1)
    with torch.cuda.stream(side):
        seen.copy_(shared)
    torch.cuda.synchronize()
    observe("seen", seen.sum().item())


@racy(pair="consumer_stream")
def wait_stream_too_early() -> None:
    """`wait_stream` covers what was issued before the call; the kernel comes after it."""
    shared = torch.zeros(N, device="cuda")
    seen = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    shared.fill_(1)
    with torch.cuda.stream(side):
        seen.copy_(shared)
    torch.cuda.synchronize()
    observe("seen", seen.sum().item())


@racy(pair="consumer_stream")
def wait_for_itself() -> None:
    """Inside the context the current stream is the side stream, which so waits for itself."""
    shared = torch.zeros(N, device="cuda")
    seen = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    shared.fill_(1)
    with torch.cuda.stream(side):
        side.wait_stream(torch.cuda.current_stream())
        seen.copy_(shared)
    torch.cuda.synchronize()
    observe("seen", seen.sum().item())


@silent(pair="consumer_stream")
def wait_stream() -> None:
    """The side stream waits for the default stream before it reads."""
    shared = torch.zeros(N, device="cuda")
    seen = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    shared.fill_(1)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        seen.copy_(shared)
    torch.cuda.synchronize()
    observe("seen", seen.sum().item())


@silent(pair="consumer_stream")
def wait_default_stream_inside() -> None:
    """Inside the context the default stream is named, not the current one."""
    shared = torch.zeros(N, device="cuda")
    seen = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    shared.fill_(1)
    with torch.cuda.stream(side):
        side.wait_stream(torch.cuda.default_stream())
        seen.copy_(shared)
    torch.cuda.synchronize()
    observe("seen", seen.sum().item())


@racy(pair="producer_stream")
def missing_wait_back() -> None:
    """The default stream uses a result of the side stream without waiting for it."""
    source = torch.ones(N, device="cuda")
    result = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.mul(source, 3, out=result)
    total = result.sum()
    torch.cuda.synchronize()
    observe("total", total.item())


@racy(pair="producer_stream")
def synchronize_wrong_stream() -> None:
    """The host synchronises the default stream, which does not wait for the side stream."""
    source = torch.ones(N, device="cuda")
    result = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.mul(source, 3, out=result)
    torch.cuda.current_stream().synchronize()
    total = result.sum()
    torch.cuda.synchronize()
    observe("total", total.item())


@silent(pair="producer_stream")
def wait_back() -> None:
    """The default stream waits for the side stream before it uses the result."""
    source = torch.ones(N, device="cuda")
    result = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.mul(source, 3, out=result)
    torch.cuda.current_stream().wait_stream(side)
    total = result.sum()
    torch.cuda.synchronize()
    observe("total", total.item())


@silent(pair="producer_stream")
def synchronize_device() -> None:
    """`torch.cuda.synchronize()` waits for every stream of the device."""
    source = torch.ones(N, device="cuda")
    result = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.mul(source, 3, out=result)
    torch.cuda.synchronize()
    observe("total", result.sum().item())


@racy(pair="nested_contexts")
def nested_context_left() -> None:
    """After the inner context the outer stream is current again and reads without waiting for the
    inner.
    """
    shared = torch.zeros(N, device="cuda")
    seen = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    outer, inner = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(outer):
        with torch.cuda.stream(inner):
            shared.fill_(1)
        seen.copy_(shared)
    torch.cuda.synchronize()
    observe("seen", seen.sum().item())


@silent(pair="nested_contexts")
def nested_context_joined() -> None:
    """The outer stream waits for the inner one where the inner context ends."""
    shared = torch.zeros(N, device="cuda")
    seen = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    outer, inner = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(outer):
        with torch.cuda.stream(inner):
            shared.fill_(1)
        torch.cuda.current_stream().wait_stream(inner)
        seen.copy_(shared)
    torch.cuda.synchronize()
    observe("seen", seen.sum().item())


@racy(pair="stream_pool")
def two_pool_streams() -> None:
    """Two streams of the pool are two queues."""
    shared = torch.zeros(N, device="cuda")
    seen = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in range(2)]
    with torch.cuda.stream(streams[0]):
        shared.fill_(1)
    with torch.cuda.stream(streams[1]):
        seen.copy_(shared)
    torch.cuda.synchronize()
    observe("seen", seen.sum().item())


@silent(pair="stream_pool")
def pool_hands_out_streams_again() -> None:
    """The pool has 32 streams a priority: the 33rd is the first again and runs in its order.

    c10/cuda/CUDAStream.h, `kStreamsPerPool`; the program checks that it is the same stream.
    """
    shared = torch.zeros(N, device="cuda")
    seen = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in range(33)]
    if streams[0] != streams[32]:
        streams[32].wait_stream(streams[0])
    with torch.cuda.stream(streams[0]):
        shared.fill_(1)
    with torch.cuda.stream(streams[32]):
        seen.copy_(shared)
    torch.cuda.synchronize()
    observe("seen", seen.sum().item())


@racy(pair="priority")
def priority_is_no_order() -> None:
    """A stream of high priority may still run after one of low priority."""
    shared = torch.zeros(N, device="cuda")
    seen = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    high, low = torch.cuda.Stream(priority=-1), torch.cuda.Stream(priority=0)
    with torch.cuda.stream(high):
        shared.fill_(1)
    with torch.cuda.stream(low):
        seen.copy_(shared)
    torch.cuda.synchronize()
    observe("seen", seen.sum().item())


@silent(pair="priority")
def priority_with_wait() -> None:
    """The stream of low priority waits for the stream of high priority."""
    shared = torch.zeros(N, device="cuda")
    seen = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    high, low = torch.cuda.Stream(priority=-1), torch.cuda.Stream(priority=0)
    with torch.cuda.stream(high):
        shared.fill_(1)
    low.wait_stream(high)
    with torch.cuda.stream(low):
        seen.copy_(shared)
    torch.cuda.synchronize()
    observe("seen", seen.sum().item())


@racy(pair="concurrent_readers")
def reader_beside_writer() -> None:
    """One stream reads the table, another writes it."""
    table = torch.ones(N, device="cuda")
    seen = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    reader, writer = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(reader):
        seen.copy_(table)
    with torch.cuda.stream(writer):
        table.mul_(2)
    torch.cuda.synchronize()
    observe("seen", seen.sum().item())


@silent(pair="concurrent_readers")
def two_readers() -> None:
    """Two streams read one table and write buffers of their own."""
    table = torch.ones(N, device="cuda")
    seen = torch.zeros(2, N, device="cuda")
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    for row, stream in enumerate(streams):
        with torch.cuda.stream(stream):
            seen[row].copy_(table)
    torch.cuda.synchronize()
    observe("seen", seen.sum(dim=1).tolist())


@racy(pair="generic_stream")
def generic_stream_without_wait() -> None:
    """`torch.Stream` of the device-independent interface is a stream like any other."""
    shared = torch.zeros(N, device="cuda")
    seen = torch.zeros(N, device="cuda")
    torch.accelerator.synchronize()
    shared.fill_(1)
    with torch.Stream(device="cuda"):
        seen.copy_(shared)
    torch.accelerator.synchronize()
    observe("seen", seen.sum().item())


@silent(pair="generic_stream")
def generic_stream_with_event() -> None:
    """`torch.Event` orders two streams of the device-independent interface."""
    shared = torch.zeros(N, device="cuda")
    seen = torch.zeros(N, device="cuda")
    torch.accelerator.synchronize()
    side = torch.Stream(device="cuda")
    ready = torch.Event(device="cuda")
    shared.fill_(1)
    ready.record(torch.accelerator.current_stream())
    side.wait_event(ready)
    with side:
        seen.copy_(shared)
    torch.accelerator.synchronize()
    observe("seen", seen.sum().item())


@racy(pair="equal_bytes", observable=False)
def rewrite_with_equal_bytes() -> None:
    """The unordered writer stores what is already there: a race by order, no wrong value in any."""
    table = torch.ones(N, device="cuda")
    seen = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    seen.copy_(table)
    with torch.cuda.stream(side):
        table.fill_(1)
    torch.cuda.synchronize()
    observe("seen", seen.sum().item())


@silent(pair="equal_bytes")
def rewrite_after_wait() -> None:
    """The writer waits for the reader, whatever it stores."""
    table = torch.ones(N, device="cuda")
    seen = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    seen.copy_(table)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        table.fill_(1)
    torch.cuda.synchronize()
    observe("seen", seen.sum().item())
