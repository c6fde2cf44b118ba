"""Weights and cache layers that are loaded while others compute, and slots that requests write side
by side.
"""

from __future__ import annotations

import torch

from .registry import N, observe, racy, silent


@racy(pair="layer_prefetch")
def layers_used_before_loaded() -> None:
    """Layers are loaded on a side stream; the default stream waits for the first of them only."""
    stored = torch.arange(1.0, 4.0).repeat_interleave(N).view(3, N).pin_memory()
    layers, hidden = torch.zeros(3, N, device="cuda"), torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    loads = torch.cuda.Stream()
    loaded = []
    with torch.cuda.stream(loads):
        for layer in range(3):
            layers[layer].copy_(stored[layer], non_blocking=True)
            loaded.append(loads.record_event())
    loaded[0].wait()
    for layer in range(3):
        hidden.mul_(10).add_(layers[layer])
    torch.cuda.synchronize()
    observe("hidden", hidden[0].item())


@silent(pair="layer_prefetch")
def layers_used_after_own_event() -> None:
    """Before each layer the default stream waits for the event behind its load."""
    stored = torch.arange(1.0, 4.0).repeat_interleave(N).view(3, N).pin_memory()
    layers, hidden = torch.zeros(3, N, device="cuda"), torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    loads = torch.cuda.Stream()
    loaded = []
    with torch.cuda.stream(loads):
        for layer in range(3):
            layers[layer].copy_(stored[layer], non_blocking=True)
            loaded.append(loads.record_event())
    for layer in range(3):
        loaded[layer].wait()
        hidden.mul_(10).add_(layers[layer])
    torch.cuda.synchronize()
    observe("hidden", hidden[0].item())


@racy(pair="weight_streaming")
def weights_onloaded_into_used_storage() -> None:
    """A module's weights are loaded into the storage of the module that is still computing."""
    first, second = torch.full((N,), 2.0, pin_memory=True), torch.full((N,), 7.0, pin_memory=True)
    weight, hidden = torch.zeros(N, device="cuda"), torch.ones(N, device="cuda")
    torch.cuda.synchronize()
    loads = torch.cuda.Stream()
    for stored in (first, second):
        with torch.cuda.stream(loads):
            weight.copy_(stored, non_blocking=True)
        torch.cuda.current_stream().wait_stream(loads)
        hidden.mul_(weight)
    torch.cuda.synchronize()
    observe("hidden", hidden[0].item())


@silent(pair="weight_streaming")
def weights_onloaded_after_use() -> None:
    """The loading stream waits for the module that used the storage before."""
    first, second = torch.full((N,), 2.0, pin_memory=True), torch.full((N,), 7.0, pin_memory=True)
    weight, hidden = torch.zeros(N, device="cuda"), torch.ones(N, device="cuda")
    torch.cuda.synchronize()
    loads = torch.cuda.Stream()
    for stored in (first, second):
        loads.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(loads):
            weight.copy_(stored, non_blocking=True)
        torch.cuda.current_stream().wait_stream(loads)
        hidden.mul_(weight)
    torch.cuda.synchronize()
    observe("hidden", hidden[0].item())


@racy(pair="slot_mapping")
def slots_of_two_requests_collide() -> None:
    """A stale slot mapping sends the keys of two chunks, written on two streams, to one slot."""
    cache = torch.zeros(16, 8, device="cuda")
    keys = torch.tensor([1.0, 2.0], device="cuda").repeat_interleave(3 * 8).view(2, 3, 8)
    mapping = torch.tensor([[4, 5, 6], [6, 7, 8]], device="cuda")
    torch.cuda.synchronize()
    for chunk in range(2):
        with torch.cuda.stream(torch.cuda.Stream()):
            cache.index_copy_(0, mapping[chunk], keys[chunk])
    torch.cuda.synchronize()
    observe("slots", cache[:, 0].tolist())


@silent(pair="slot_mapping")
def slots_of_two_requests() -> None:
    """The slot mappings of two chunks share no slot, so two streams may write the cache at once."""
    cache = torch.zeros(16, 8, device="cuda")
    keys = torch.tensor([1.0, 2.0], device="cuda").repeat_interleave(3 * 8).view(2, 3, 8)
    mapping = torch.tensor([[4, 5, 6], [7, 8, 9]], device="cuda")
    torch.cuda.synchronize()
    for chunk in range(2):
        with torch.cuda.stream(torch.cuda.Stream()):
            cache.index_copy_(0, mapping[chunk], keys[chunk])
    torch.cuda.synchronize()
    observe("slots", cache[:, 0].tolist())


@racy(pair="mapping_upload")
def mapping_used_before_upload() -> None:
    """The slot mapping is uploaded on a copy stream; the write that it directs does not wait for
    it.
    """
    cache, keys = torch.zeros(16, 8, device="cuda"), torch.ones(3, 8, device="cuda")
    mapping = torch.zeros(3, dtype=torch.int64, device="cuda")
    mapping_cpu = torch.tensor([4, 5, 6]).pin_memory()
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        mapping.copy_(mapping_cpu, non_blocking=True)
    cache.index_copy_(0, mapping, keys)
    torch.cuda.synchronize()
    observe("slots", cache[:, 0].tolist())


@silent(pair="mapping_upload")
def mapping_used_after_upload() -> None:
    """The write waits for the upload of its slot mapping."""
    cache, keys = torch.zeros(16, 8, device="cuda"), torch.ones(3, 8, device="cuda")
    mapping = torch.zeros(3, dtype=torch.int64, device="cuda")
    mapping_cpu = torch.tensor([4, 5, 6]).pin_memory()
    torch.cuda.synchronize()
    copies = torch.cuda.Stream()
    with torch.cuda.stream(copies):
        mapping.copy_(mapping_cpu, non_blocking=True)
    torch.cuda.current_stream().wait_stream(copies)
    cache.index_copy_(0, mapping, keys)
    torch.cuda.synchronize()
    observe("slots", cache[:, 0].tolist())


@racy(pair="state_checkpoint")
def state_checkpoint_beside_update() -> None:
    """A recurrent state is copied to its checkpoint slot on a side stream while the next step
    updates it.
    """
    states = torch.zeros(4, N, device="cuda")
    states[0].fill_(3)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        states[2].copy_(states[0])
    states[0].mul_(5)
    torch.cuda.synchronize()
    observe("states", states[:, 0].tolist())


@silent(pair="state_checkpoint")
def state_checkpoint_on_step_stream() -> None:
    """The checkpoint is taken on the stream of the steps; another stream works on other slots."""
    states = torch.zeros(4, N, device="cuda")
    states[0].fill_(3)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        states[3].add_(1)
    states[2].copy_(states[0])
    states[0].mul_(5)
    torch.cuda.synchronize()
    observe("states", states[:, 0].tolist())
