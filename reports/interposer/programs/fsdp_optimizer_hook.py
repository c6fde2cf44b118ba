"""torch: FSDP2 over two replicas, gradients on the host, whose hooks step as each one comes."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard

from racegate.interpose import observe

rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
mesh = dist.init_device_mesh("cuda", (2, 1), mesh_dim_names=("replicas", "shards"))
torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(3)])
for layer in (*model, model):
    fully_shard(layer, mesh=mesh, offload_policy=CPUOffloadPolicy())


def step(weight: torch.Tensor) -> None:
    """As torch shows it in the words on `register_post_accumulate_grad_hook`."""
    with torch.no_grad():
        weight.add_(weight.grad, alpha=-0.1)


for weight in model.parameters():
    weight.register_post_accumulate_grad_hook(step)
model(torch.full((4, 32), rank + 1.0, device="cuda")).pow(2).mean().backward()
sums = [weight.detach().to_local().sum() for weight in model.parameters()]
observe("weights", torch.stack(sums))
dist.destroy_process_group()
