# expect = "silent"
# command = ["torch", "run", "--ranks", "2"]
# twin = ["sum_used_too_early"]
# says = ["no conflict"]
"""The result of a collective is used behind the wait for it."""

import os

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
x = torch.full((4,), float(rank + 1), device="cuda")
work = dist.all_reduce(x, async_op=True)
work.wait()
assert (x + 1).tolist() == [4.0] * 4
dist.destroy_process_group()
