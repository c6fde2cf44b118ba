"""Serving engines: accepted counts, sampled tokens, block tables, bitmasks, caches and weights that
come and go.
"""

from __future__ import annotations

import numpy as np
import torch

from .registry import N, observe, racy, silent

ROWS = 8  # requests of a batch


def _accepted(step: int) -> torch.Tensor:
    """What a rejection sampler would have accepted for each request in that step. Returns: [ROWS]
    int32.
    """
    return torch.full((ROWS,), step + 1, dtype=torch.int32, device="cuda")


@racy(pair="accepted_counts")
def accepted_counts_read_early() -> None:
    """Asynchronous speculative decoding: the scheduler reads the accepted counts before their copy
    has landed.
    """
    counts_cpu = torch.zeros(ROWS, dtype=torch.int32, pin_memory=True)
    copies = torch.cuda.Stream()
    computed = 0
    for step in range(3):
        counts = _accepted(step)
        copies.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(copies):
            counts_cpu.copy_(counts, non_blocking=True)
        counts.record_stream(copies)
        computed += int(counts_cpu.numpy().sum())
    torch.cuda.synchronize()
    observe("computed tokens", computed)


@racy(pair="accepted_counts")
def accepted_counts_event_before_copy() -> None:
    """The event is recorded on the compute stream once the counts exist, before the copy stream has
    copied them.
    """
    counts_cpu = torch.zeros(ROWS, dtype=torch.int32, pin_memory=True)
    copies = torch.cuda.Stream()
    computed = 0
    for step in range(3):
        counts = _accepted(step)
        ready = torch.cuda.current_stream().record_event()
        with torch.cuda.stream(copies):
            ready.wait()
            counts_cpu.copy_(counts, non_blocking=True)
        counts.record_stream(copies)
        ready.synchronize()
        computed += int(counts_cpu.numpy().sum())
    torch.cuda.synchronize()
    observe("computed tokens", computed)


@silent(pair="accepted_counts")
def accepted_counts_waited_for() -> None:
    """The event is recorded on the copy stream behind the copy; the scheduler waits for it."""
    counts_cpu = torch.zeros(ROWS, dtype=torch.int32, pin_memory=True)
    copies = torch.cuda.Stream()
    computed = 0
    for step in range(3):
        counts = _accepted(step)
        copies.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(copies):
            counts_cpu.copy_(counts, non_blocking=True)
            copied = copies.record_event()
        counts.record_stream(copies)
        copied.synchronize()
        computed += int(counts_cpu.numpy().sum())
    observe("computed tokens", computed)


@racy(pair="counts_buffer")
def counts_overwritten_by_next_step() -> None:
    """The next step writes its counts into the persistent buffer that the copy stream still
    reads.
    """
    counts = torch.zeros(ROWS, dtype=torch.int32, device="cuda")
    counts_cpu = torch.zeros(3, ROWS, dtype=torch.int32, pin_memory=True)
    torch.cuda.synchronize()
    copies = torch.cuda.Stream()
    for step in range(3):
        counts.fill_(step + 1)
        copies.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(copies):
            counts_cpu[step].copy_(counts, non_blocking=True)
    torch.cuda.synchronize()
    observe("counts", counts_cpu[:, 0].tolist())


@silent(pair="counts_buffer")
def counts_overwritten_after_copy() -> None:
    """The compute stream waits for the copy of the step before it writes the next counts."""
    counts = torch.zeros(ROWS, dtype=torch.int32, device="cuda")
    counts_cpu = torch.zeros(3, ROWS, dtype=torch.int32, pin_memory=True)
    torch.cuda.synchronize()
    copies = torch.cuda.Stream()
    for step in range(3):
        torch.cuda.current_stream().wait_stream(copies)
        counts.fill_(step + 1)
        copies.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(copies):
            counts_cpu[step].copy_(counts, non_blocking=True)
    torch.cuda.synchronize()
    observe("counts", counts_cpu[:, 0].tolist())


@racy(pair="sampled_tokens")
def sampled_tokens_fed_back_by_host() -> None:
    """The next input is built from the host copy of the sampled tokens, which has not landed."""
    sampled = torch.arange(ROWS, dtype=torch.int64, device="cuda") + 100
    sampled_cpu = torch.full((ROWS,), -1, dtype=torch.int64, pin_memory=True)
    sampled_cpu.copy_(sampled, non_blocking=True)
    next_input = sampled_cpu.tolist()
    torch.cuda.synchronize()
    observe("next input", next_input)


@silent(pair="sampled_tokens")
def sampled_tokens_fed_back_on_device() -> None:
    """The next input takes the tokens on the device; the host copy is read when it has landed."""
    sampled = torch.arange(ROWS, dtype=torch.int64, device="cuda") + 100
    sampled_cpu = sampled.to("cpu", non_blocking=True)
    landed = torch.cuda.current_stream().record_event()
    next_input = torch.zeros(ROWS, dtype=torch.int64, device="cuda")
    next_input.copy_(sampled)
    landed.synchronize()
    observe("delivered", sampled_cpu.tolist())
    observe("next input", next_input.tolist())


@racy(pair="block_table")
def block_table_row_moved() -> None:
    """The batch is condensed: a row of the pinned block table moves while the table is being
    uploaded.
    """
    table_cpu = torch.arange(ROWS * 4, dtype=torch.int32).view(ROWS, 4).pin_memory()
    rows = table_cpu.numpy()
    table = torch.zeros(ROWS, 4, dtype=torch.int32, device="cuda")
    table.copy_(table_cpu, non_blocking=True)
    rows[2] = rows[ROWS - 1]
    torch.cuda.synchronize()
    observe("row", table[2].tolist())


@racy(pair="block_table")
def block_table_row_swapped_with_masked_tail() -> None:
    """Only the live rows are uploaded, but the row that moves is one of them."""
    table_cpu = torch.arange(ROWS * 4, dtype=torch.int32).view(ROWS, 4).pin_memory()
    rows = table_cpu.numpy()
    table = torch.zeros(ROWS, 4, dtype=torch.int32, device="cuda")
    table[:3].copy_(table_cpu[:3], non_blocking=True)
    rows[[2, 5]] = rows[[5, 2]]
    torch.cuda.synchronize()
    observe("row", table[2].tolist())


@silent(pair="block_table")
def block_table_dead_row_written() -> None:
    """Only the live rows are uploaded; the row that is written lies behind them."""
    table_cpu = torch.arange(ROWS * 4, dtype=torch.int32).view(ROWS, 4).pin_memory()
    rows = table_cpu.numpy()
    table = torch.zeros(ROWS, 4, dtype=torch.int32, device="cuda")
    table[:3].copy_(table_cpu[:3], non_blocking=True)
    rows[5] = -1
    torch.cuda.synchronize()
    observe("row", table[2].tolist())


@silent(pair="block_table")
def block_table_master_copy_moved() -> None:
    """The table that the host edits is pageable; each step uploads a pinned copy of its own."""
    rows = np.arange(ROWS * 4, dtype=np.int32).reshape(ROWS, 4)
    table = torch.zeros(ROWS, 4, dtype=torch.int32, device="cuda")
    table.copy_(torch.from_numpy(rows).pin_memory(), non_blocking=True)
    rows[2] = rows[ROWS - 1]
    torch.cuda.synchronize()
    observe("row", table[2].tolist())


@racy(pair="bitmask")
def grammar_bitmask_refilled() -> None:
    """The grammar's bitmask of the next step is written into the pinned memory whose upload is in
    flight.
    """
    mask_cpu = torch.zeros(ROWS, 4, dtype=torch.int32, pin_memory=True)
    masks = torch.zeros(2, ROWS, 4, dtype=torch.int32, device="cuda")
    filled = mask_cpu.numpy()
    for step in range(2):
        filled[:] = step + 1
        masks[step].copy_(mask_cpu, non_blocking=True)
    torch.cuda.synchronize()
    observe("masks", masks[:, 0, 0].tolist())


@silent(pair="bitmask")
def grammar_bitmask_of_the_step() -> None:
    """Each step fills pageable memory and uploads a pinned copy that lives as long as its
    upload.
    """
    filled = np.zeros((ROWS, 4), dtype=np.int32)
    masks = torch.zeros(2, ROWS, 4, dtype=torch.int32, device="cuda")
    for step in range(2):
        filled[:] = step + 1
        masks[step].copy_(torch.from_numpy(filled).pin_memory(), non_blocking=True)
    torch.cuda.synchronize()
    observe("masks", masks[:, 0, 0].tolist())


@racy(pair="cache_offload")
def cache_block_reused_under_offload() -> None:
    """A block of the KV cache is given to another request while its offload still reads it."""
    cache = torch.ones(4, N, device="cuda")
    store = torch.zeros(4, N, pin_memory=True)
    torch.cuda.synchronize()
    offload = torch.cuda.Stream()
    offload.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(offload):
        store[2].copy_(cache[2], non_blocking=True)
    cache[2].fill_(9)
    torch.cuda.synchronize()
    observe("stored", store[2].sum().item())


@silent(pair="cache_offload")
def cache_other_block_reused() -> None:
    """The block that is given away is not the one being offloaded."""
    cache = torch.ones(4, N, device="cuda")
    store = torch.zeros(4, N, pin_memory=True)
    torch.cuda.synchronize()
    offload = torch.cuda.Stream()
    offload.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(offload):
        store[2].copy_(cache[2], non_blocking=True)
    cache[3].fill_(9)
    torch.cuda.synchronize()
    observe("stored", store[2].sum().item())


@racy(pair="cache_prefetch")
def cache_prefetched_while_offloading() -> None:
    """The prefetch stream uploads from pinned memory whose offload on the default stream is
    pending.

    HuggingFace transformers' offloaded caches did this and waited for the default stream in a later
    release.
    """
    layer = torch.ones(N, device="cuda")
    store = torch.zeros(N, pin_memory=True)
    back = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    prefetch = torch.cuda.Stream()
    store.copy_(layer, non_blocking=True)
    with torch.cuda.stream(prefetch):
        back.copy_(store, non_blocking=True)
    torch.cuda.current_stream().wait_stream(prefetch)
    total = back.sum()
    torch.cuda.synchronize()
    observe("total", total.item())


@silent(pair="cache_prefetch")
def cache_prefetched_after_offload() -> None:
    """The prefetch stream waits for the default stream, on which the offload is."""
    layer = torch.ones(N, device="cuda")
    store = torch.zeros(N, pin_memory=True)
    back = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    prefetch = torch.cuda.Stream()
    store.copy_(layer, non_blocking=True)
    prefetch.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(prefetch):
        back.copy_(store, non_blocking=True)
    torch.cuda.current_stream().wait_stream(prefetch)
    total = back.sum()
    torch.cuda.synchronize()
    observe("total", total.item())
