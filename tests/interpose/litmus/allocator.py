"""The caching allocators: when freed memory is handed out again, and what `record_stream` adds.

A block goes back to the pool of the stream it was allocated on as soon as Python frees the tensor;
the next tensor of that stream may take it at once. That is safe for its own stream and for no
other.
"""

from __future__ import annotations

import torch

from .registry import N, observe, racy, silent


@racy(pair="record_stream")
def missing_record_stream() -> None:
    """A tensor of the default stream is freed while a side stream reads it; the next step takes its
    block.
    """
    kept = torch.zeros(3, N, device="cuda")
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    for step in range(3):
        chunk = torch.full((N,), step + 1.0, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            kept[step].copy_(chunk)
        del chunk
    torch.cuda.synchronize()
    observe("kept", kept[:, 0].tolist())


@racy(pair="record_stream")
def record_stream_of_own_stream() -> None:
    """`record_stream` is given the stream the tensor was allocated on, which changes nothing."""
    kept = torch.zeros(3, N, device="cuda")
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    for step in range(3):
        chunk = torch.full((N,), step + 1.0, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            kept[step].copy_(chunk)
        chunk.record_stream(torch.cuda.current_stream())
        del chunk
    torch.cuda.synchronize()
    observe("kept", kept[:, 0].tolist())


@silent(pair="record_stream")
def record_stream() -> None:
    """`record_stream` keeps the block from reuse until an event on the side stream has
    completed.
    """
    kept = torch.zeros(3, N, device="cuda")
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    for step in range(3):
        chunk = torch.full((N,), step + 1.0, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            kept[step].copy_(chunk)
        chunk.record_stream(side)
        del chunk
    torch.cuda.synchronize()
    observe("kept", kept[:, 0].tolist())


@silent(pair="record_stream")
def record_stream_of_view() -> None:
    """`record_stream` of a view protects the whole block behind it."""
    kept = torch.zeros(3, N, device="cuda")
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    for step in range(3):
        chunk = torch.full((N,), step + 1.0, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            kept[step].copy_(chunk)
        chunk[:8].record_stream(side)
        del chunk
    torch.cuda.synchronize()
    observe("kept", kept[:, 0].tolist())


@silent(pair="record_stream")
def wait_before_free() -> None:
    """The default stream waits for the side stream before the block is free for its next tensor."""
    kept = torch.zeros(3, N, device="cuda")
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    for step in range(3):
        chunk = torch.full((N,), step + 1.0, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            kept[step].copy_(chunk)
        torch.cuda.current_stream().wait_stream(side)
        del chunk
    torch.cuda.synchronize()
    observe("kept", kept[:, 0].tolist())


@silent(pair="record_stream")
def references_kept() -> None:
    """The tensors are kept in a list until the device was synchronised."""
    kept = torch.zeros(3, N, device="cuda")
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    in_flight = []
    for step in range(3):
        chunk = torch.full((N,), step + 1.0, device="cuda")
        in_flight.append(chunk)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            kept[step].copy_(chunk)
    torch.cuda.synchronize()
    in_flight.clear()
    observe("kept", kept[:, 0].tolist())


@silent(pair="record_stream")
def reuse_on_same_stream() -> None:
    """Allocated, used and freed on one stream: its order makes the reuse safe."""
    kept = torch.zeros(3, N, device="cuda")
    for step in range(3):
        chunk = torch.full((N,), step + 1.0, device="cuda")
        kept[step].copy_(chunk)
        del chunk
    torch.cuda.synchronize()
    observe("kept", kept[:, 0].tolist())


@silent(pair="record_stream")
def recorded_block_taken_after_wait() -> None:
    """Once the host has waited for the side stream, the allocator finds the recorded block's event
    complete and hands the block out again.
    """
    kept = torch.zeros(3, N, device="cuda")
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    for step in range(3):
        chunk = torch.full((N,), step + 1.0, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            kept[step].copy_(chunk)
        chunk.record_stream(side)
        del chunk
        side.synchronize()
    torch.cuda.synchronize()
    observe("kept", kept[:, 0].tolist())


@racy(pair="record_stream_of_two")
def record_stream_of_one_of_two() -> None:
    """Two side streams read a tensor, and only the first is recorded: its event says nothing of the
    second.
    """
    kept = torch.zeros(2, 3, N, device="cuda")
    torch.cuda.synchronize()
    sides = [torch.cuda.Stream() for _ in range(2)]
    for step in range(3):
        chunk = torch.full((N,), step + 1.0, device="cuda")
        for rows, side in zip(kept, sides, strict=True):
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                rows[step].copy_(chunk)
        chunk.record_stream(sides[0])
        del chunk
        sides[0].synchronize()
    torch.cuda.synchronize()
    observe("kept", kept[:, :, 0].tolist())


@silent(pair="record_stream_of_two")
def record_stream_of_both() -> None:
    """Both side streams are recorded: the block comes back when both have read it."""
    kept = torch.zeros(2, 3, N, device="cuda")
    torch.cuda.synchronize()
    sides = [torch.cuda.Stream() for _ in range(2)]
    for step in range(3):
        chunk = torch.full((N,), step + 1.0, device="cuda")
        for rows, side in zip(kept, sides, strict=True):
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                rows[step].copy_(chunk)
            chunk.record_stream(side)
        del chunk
        sides[0].synchronize()
    torch.cuda.synchronize()
    observe("kept", kept[:, :, 0].tolist())


@racy(pair="side_allocation")
def side_allocation_freed() -> None:
    """A tensor of the side stream's pool is freed while the default stream reads it; the next
    upload takes its block.
    """
    batches = torch.arange(1.0, 4.0).repeat_interleave(N).view(3, N).pin_memory()
    kept = torch.zeros(3, N, device="cuda")
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    for step in range(3):
        with torch.cuda.stream(side):
            batch = batches[step].to("cuda", non_blocking=True)
        torch.cuda.current_stream().wait_stream(side)
        kept[step].copy_(batch)
        del batch
    torch.cuda.synchronize()
    observe("kept", kept[:, 0].tolist())


@silent(pair="side_allocation")
def side_allocation_recorded() -> None:
    """`record_stream` of the default stream keeps the block of the side stream's pool until it was
    read.
    """
    batches = torch.arange(1.0, 4.0).repeat_interleave(N).view(3, N).pin_memory()
    kept = torch.zeros(3, N, device="cuda")
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    for step in range(3):
        with torch.cuda.stream(side):
            batch = batches[step].to("cuda", non_blocking=True)
        torch.cuda.current_stream().wait_stream(side)
        kept[step].copy_(batch)
        batch.record_stream(torch.cuda.current_stream())
        del batch
    torch.cuda.synchronize()
    observe("kept", kept[:, 0].tolist())


@silent(pair="side_allocation")
def side_allocation_waited_for() -> None:
    """Before each upload the side stream waits for the default stream, so the block is no longer
    read.
    """
    batches = torch.arange(1.0, 4.0).repeat_interleave(N).view(3, N).pin_memory()
    kept = torch.zeros(3, N, device="cuda")
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    for step in range(3):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            batch = batches[step].to("cuda", non_blocking=True)
        torch.cuda.current_stream().wait_stream(side)
        kept[step].copy_(batch)
        del batch
    torch.cuda.synchronize()
    observe("kept", kept[:, 0].tolist())


@racy(pair="download_source_freed")
def download_source_freed() -> None:
    """The source of a download on a copy stream is a temporary; the next tensor takes its block and
    overwrites it.
    """
    host = torch.zeros(N, pin_memory=True)
    counts = torch.ones(N, device="cuda")
    torch.cuda.synchronize()
    copies = torch.cuda.Stream()
    doubled = counts * 2
    copies.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(copies):
        host.copy_(doubled, non_blocking=True)
    del doubled
    other = torch.full((N,), 9.0, device="cuda")
    torch.cuda.synchronize()
    observe("downloaded", host.sum().item())
    observe("other", other.sum().item())


@silent(pair="download_source_freed")
def download_source_recorded() -> None:
    """The temporary is recorded on the copy stream before it is freed."""
    host = torch.zeros(N, pin_memory=True)
    counts = torch.ones(N, device="cuda")
    torch.cuda.synchronize()
    copies = torch.cuda.Stream()
    doubled = counts * 2
    copies.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(copies):
        host.copy_(doubled, non_blocking=True)
    doubled.record_stream(copies)
    del doubled
    other = torch.full((N,), 9.0, device="cuda")
    torch.cuda.synchronize()
    observe("downloaded", host.sum().item())
    observe("other", other.sum().item())


@racy(pair="storage_resized")
def storage_freed_by_resize() -> None:
    """A sharded parameter gives its full storage back with `resize_(0)` while a side stream still
    reads it.
    """
    full = torch.ones(N, device="cuda")
    used = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    compute = torch.cuda.Stream()
    with torch.cuda.stream(compute):
        used.copy_(full)
    full.untyped_storage().resize_(0)
    gathered = torch.full((N,), 2.0, device="cuda")
    torch.cuda.synchronize()
    observe("used", used.sum().item())
    observe("gathered", gathered.sum().item())


@silent(pair="storage_resized")
def storage_recorded_before_resize() -> None:
    """The parameter is recorded on the computing stream before its storage is given back."""
    full = torch.ones(N, device="cuda")
    used = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    compute = torch.cuda.Stream()
    with torch.cuda.stream(compute):
        used.copy_(full)
    full.record_stream(compute)
    full.untyped_storage().resize_(0)
    gathered = torch.full((N,), 2.0, device="cuda")
    torch.cuda.synchronize()
    observe("used", used.sum().item())
    observe("gathered", gathered.sum().item())


@silent(pair="pinned_temporary")
def pinned_temporary_dies() -> None:
    """A pinned temporary dies under its upload: the host allocator keeps its block until the copy
    has read it.

    CachingHostAllocator.h: `copy_` records the stream, `free` records an event, reuse waits until
    it has completed.
    """
    uploaded = []
    for step in range(3):
        uploaded.append(torch.full((N,), step + 1.0).pin_memory().to("cuda", non_blocking=True))
    torch.cuda.synchronize()
    observe("uploaded", [tensor[0].item() for tensor in uploaded])


@silent(pair="pinned_temporary")
def pinned_slice_temporary_dies() -> None:
    """The upload is of a slice of the temporary; the allocator finds the block by address range or
    context.
    """
    uploaded = []
    for step in range(3):
        whole = torch.full((2 * N,), step + 1.0, pin_memory=True)
        uploaded.append(whole[N // 2 : N].to("cuda", non_blocking=True))
        del whole
    torch.cuda.synchronize()
    observe("uploaded", [tensor[0].item() for tensor in uploaded])


@racy(pair="pinned_temporary")
def pinned_temporary_shared() -> None:
    """The pinned source does not die: it is one buffer that each step fills anew under the upload
    before.
    """
    whole = torch.zeros(N, pin_memory=True)
    uploaded = []
    for step in range(3):
        whole.fill_(step + 1.0)
        uploaded.append(whole.to("cuda", non_blocking=True))
    torch.cuda.synchronize()
    observe("uploaded", [tensor[0].item() for tensor in uploaded])
