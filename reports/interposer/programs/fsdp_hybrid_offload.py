"""torch: FSDP2 over a mesh of replicas, whose gradients go to the host."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

from racegate.interpose import observe

rank = int(os.environ["RANK"])
shards = int(sys.argv[1])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
mesh = init_device_mesh(
    "cuda", (dist.get_world_size() // shards, shards), mesh_dim_names=("replicas", "shards")
)
torch.manual_seed(0)
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
model = torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(4)])
for layer in (*model, model):
    fully_shard(layer, mesh=mesh, mp_policy=policy, offload_policy=CPUOffloadPolicy())
print([(n,p.grad) for n,p in model.named_parameters()][:0]);x = torch.full((4, 32), rank + 1.0, device="cuda")
model(x).pow(2).mean().backward()
sums = [one.grad.to_local().float().sum() for one in model.parameters() if one.grad is not None]
observe("gradients", torch.stack(sums))
dist.destroy_process_group()
