# expect = "conflict"
# command = ["torch", "run", "--ranks", "2"]
# says = ["rank 1"]
"""One rank of two overwrites what it sends before it was sent."""

import os

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
x = torch.full((4,), float(rank + 1), device="cuda")
parts = [torch.empty_like(x) for _ in range(2)]
work = dist.all_gather(parts, x, async_op=True)
if rank == 1:
    x.zero_()
work.wait()
dist.destroy_process_group()
