"""torch: FSDP2 in mixed precision, whose gradients are all-reduced by a hook of the program."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from racegate.interpose import observe

rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
torch.manual_seed(0)
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
model = torch.nn.Sequential(*[torch.nn.Linear(32, 32, dtype=torch.bfloat16) for _ in range(4)])
model.cuda()
for layer in (*model, model):
    fully_shard(layer, mp_policy=policy)
group = dist.new_group([0, 1])


def reduce(output: torch.Tensor) -> None:
    """As a program does that keeps copies of its shards elsewhere."""
    dist.all_reduce(output, group=group)


for layer in model:
    layer.set_all_reduce_hook(reduce)
x = torch.full((4, 32), rank + 1.0, device="cuda", dtype=torch.bfloat16)
model(x).pow(2).mean().backward()
sums = [one.grad.to_local().float().sum() for one in model.parameters() if one.grad is not None]
observe("gradients", torch.stack(sums))
dist.destroy_process_group()
