# expect = "conflict"
# command = ["torch", "run", "--ranks", "2"]
# says = ["all_reduce writes it", "add reads it"]
"""The result of a collective is used before anything waits for it."""

import os

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
x = torch.full((4,), float(rank + 1), device="cuda")
work = dist.all_reduce(x, async_op=True)
y = x + 1
work.wait()
dist.destroy_process_group()
