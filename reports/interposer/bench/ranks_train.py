"""A training loop of ranks: `racegate torch run --ranks N ranks_train.py ddp|fsdp STEPS`."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

WIDTH, LAYERS = 32, 4


def main() -> None:
    rank, steps = int(os.environ["RANK"]), int(sys.argv[2])
    torch.set_num_threads(1)
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    torch.manual_seed(0)
    model: torch.nn.Module = torch.nn.Sequential(
        *[torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
    ).cuda()
    if sys.argv[1] == "fsdp":
        for layer in model.children():
            fully_shard(layer)
        fully_shard(model)
    else:
        model = DistributedDataParallel(model, device_ids=[rank], bucket_cap_mb=0.005)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        model(torch.randn(8, WIDTH, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
