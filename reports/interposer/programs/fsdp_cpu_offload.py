"""FSDP2 with parameters and gradients on the host, in one process."""

from __future__ import annotations

import tempfile

import torch
import torch.distributed as dist
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard

from racegate.interpose import observe

torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range(3)])
with tempfile.TemporaryDirectory() as folder:
    store = f"file://{folder}/store"
    dist.init_process_group("cpu:gloo,cuda:gloo", init_method=store, rank=0, world_size=1)
    mesh = dist.init_device_mesh("cuda", (1,))
    for layer in model:
        fully_shard(layer, mesh=mesh, offload_policy=CPUOffloadPolicy())
    fully_shard(model, mesh=mesh, offload_policy=CPUOffloadPolicy())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for _ in range(3):
        inputs = torch.randn(4, 16).pin_memory().to("cuda", non_blocking=True)
        loss = model(inputs).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    observe("losses", torch.stack(losses))
    observe("weight", model[0].weight)
    dist.destroy_process_group()
