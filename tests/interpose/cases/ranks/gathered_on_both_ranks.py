# expect = "silent"
# command = ["torch", "run", "--ranks", "2"]
# twin = ["gathered_on_one_rank_only"]
# says = ["no conflict"]
"""Both ranks overwrite what they send once it was sent."""

import os

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
x = torch.full((4,), float(rank + 1), device="cuda")
parts = [torch.empty_like(x) for _ in range(2)]
work = dist.all_gather(parts, x, async_op=True)
work.wait()
x.zero_()
assert parts[1].tolist() == [2.0] * 4
dist.destroy_process_group()
