"""Staging: pinned slots that serve one upload after another, and buffers that take turns on the
device.
"""

from __future__ import annotations

import torch

from .registry import N, observe, racy, silent


@racy(pair="staging")
def staging_one_slot() -> None:
    """One pinned slot serves every step and is filled again while its upload is in flight."""
    slot = torch.zeros(N, pin_memory=True)
    steps = torch.zeros(3, N, device="cuda")
    for step in range(3):
        slot.fill_(step + 1.0)
        steps[step].copy_(slot, non_blocking=True)
    torch.cuda.synchronize()
    observe("steps", steps[:, 0].tolist())


@racy(pair="staging")
def staging_two_slots_unchecked() -> None:
    """Two slots only put off the same rewrite to the third step."""
    slots = torch.zeros(2, N, pin_memory=True)
    steps = torch.zeros(3, N, device="cuda")
    for step in range(3):
        slot = slots[step % 2]
        slot.fill_(step + 1.0)
        steps[step].copy_(slot, non_blocking=True)
    torch.cuda.synchronize()
    observe("steps", steps[:, 0].tolist())


@racy(pair="staging")
def staging_two_slots_three_events() -> None:
    """Three events for two slots: the one waited for is older than the slot's last upload."""
    slots = torch.zeros(2, N, pin_memory=True)
    read = [torch.cuda.Event() for _ in range(3)]
    steps = torch.zeros(6, N, device="cuda")
    for step in range(6):
        read[step % 3].synchronize()
        slots[step % 2].fill_(step + 1.0)
        steps[step].copy_(slots[step % 2], non_blocking=True)
        read[step % 3].record()
    torch.cuda.synchronize()
    observe("steps", steps[:, 0].tolist())


@silent(pair="staging")
def staging_one_slot_waits() -> None:
    """The one slot is filled again after an event behind its upload."""
    slot = torch.zeros(N, pin_memory=True)
    read = torch.cuda.Event()
    steps = torch.zeros(3, N, device="cuda")
    for step in range(3):
        read.synchronize()
        slot.fill_(step + 1.0)
        steps[step].copy_(slot, non_blocking=True)
        read.record()
    torch.cuda.synchronize()
    observe("steps", steps[:, 0].tolist())


@silent(pair="staging")
def staging_two_slots_events() -> None:
    """Each slot is filled again after the event behind its own last upload."""
    slots = torch.zeros(2, N, pin_memory=True)
    read = [torch.cuda.Event(), torch.cuda.Event()]
    steps = torch.zeros(4, N, device="cuda")
    for step in range(4):
        turn = step % 2
        read[turn].synchronize()
        slots[turn].fill_(step + 1.0)
        steps[step].copy_(slots[turn], non_blocking=True)
        read[turn].record()
    torch.cuda.synchronize()
    observe("steps", steps[:, 0].tolist())


@silent(pair="staging")
def staging_fresh_slot_each_step() -> None:
    """Each step pins memory of its own; the host allocator reuses none that is still being read."""
    steps = torch.zeros(3, N, device="cuda")
    for step in range(3):
        slot = torch.full((N,), step + 1.0, pin_memory=True)
        steps[step].copy_(slot, non_blocking=True)
    torch.cuda.synchronize()
    observe("steps", steps[:, 0].tolist())


@racy(pair="device_slots")
def device_slot_filled_while_used() -> None:
    """The copy stream fills the one device slot for the next step while the default stream computes
    on it.
    """
    inputs = torch.arange(1.0, 4.0).repeat_interleave(N).view(3, N).pin_memory()
    slot, total = torch.zeros(N, device="cuda"), torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    copies = torch.cuda.Stream()
    for step in range(3):
        with torch.cuda.stream(copies):
            slot.copy_(inputs[step], non_blocking=True)
        torch.cuda.current_stream().wait_stream(copies)
        total.mul_(10).add_(slot)
    torch.cuda.synchronize()
    observe("total", total[0].item())


@racy(pair="device_slots")
def device_slots_without_free_event() -> None:
    """Two device slots take turns, but nobody tells the copy stream when a slot is free again."""
    inputs = torch.arange(1.0, 5.0).repeat_interleave(N).view(4, N).pin_memory()
    slots, total = torch.zeros(2, N, device="cuda"), torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    copies = torch.cuda.Stream()
    for step in range(4):
        with torch.cuda.stream(copies):
            slots[step % 2].copy_(inputs[step], non_blocking=True)
        torch.cuda.current_stream().wait_stream(copies)
        total.mul_(10).add_(slots[step % 2])
    torch.cuda.synchronize()
    observe("total", total[0].item())


@silent(pair="device_slots")
def device_slots_double_buffered() -> None:
    """Each slot has an event for filled and one for free; both streams wait for the one they
    need.
    """
    inputs = torch.arange(1.0, 5.0).repeat_interleave(N).view(4, N).pin_memory()
    slots, total = torch.zeros(2, N, device="cuda"), torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    copies = torch.cuda.Stream()
    filled = [torch.cuda.Event(), torch.cuda.Event()]
    free = [torch.cuda.Event(), torch.cuda.Event()]
    for step in range(4):
        turn = step % 2
        copies.wait_event(free[turn])
        with torch.cuda.stream(copies):
            slots[turn].copy_(inputs[step], non_blocking=True)
            filled[turn].record()
        filled[turn].wait()
        total.mul_(10).add_(slots[turn])
        free[turn].record()
    torch.cuda.synchronize()
    observe("total", total[0].item())


@racy(pair="ping_pong")
def ping_pong_swapped_too_soon() -> None:
    """Producer and consumer swap buffers each step, and the producer does not wait for the
    consumer.
    """
    front, back = torch.zeros(N, device="cuda"), torch.zeros(N, device="cuda")
    seen = torch.zeros(4, N, device="cuda")
    torch.cuda.synchronize()
    producer, consumer = torch.cuda.Stream(), torch.cuda.Stream()
    for step in range(4):
        with torch.cuda.stream(producer):
            back.fill_(step + 1.0)
        consumer.wait_stream(producer)
        front, back = back, front
        with torch.cuda.stream(consumer):
            seen[step].copy_(front)
    torch.cuda.synchronize()
    observe("seen", seen[:, 0].tolist())


@silent(pair="ping_pong")
def ping_pong_waits_both_ways() -> None:
    """The producer waits for the consumer before it takes up the buffer that was read."""
    front, back = torch.zeros(N, device="cuda"), torch.zeros(N, device="cuda")
    seen = torch.zeros(4, N, device="cuda")
    torch.cuda.synchronize()
    producer, consumer = torch.cuda.Stream(), torch.cuda.Stream()
    for step in range(4):
        producer.wait_stream(consumer)
        with torch.cuda.stream(producer):
            back.fill_(step + 1.0)
        consumer.wait_stream(producer)
        front, back = back, front
        with torch.cuda.stream(consumer):
            seen[step].copy_(front)
    torch.cuda.synchronize()
    observe("seen", seen[:, 0].tolist())
