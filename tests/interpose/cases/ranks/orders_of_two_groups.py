# expect = "conflict"
# command = ["torch", "run", "--ranks", "2"]
# says = ["ORDER"]
"""Two ranks issue collectives of two communicators in opposite orders."""

import os

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
groups = [dist.new_group([0, 1]) for _ in range(2)]
for group in groups:
    dist.barrier(group)
torch.cuda.synchronize()
first, second = torch.ones(4, device="cuda"), torch.ones(4, device="cuda")
pairs = list(zip(groups, (first, second), strict=True))
works = [
    dist.all_reduce(one, group=group, async_op=True)
    for group, one in (pairs if rank == 0 else pairs[::-1])
]
for work in works:
    work.wait()
torch.cuda.synchronize()
dist.destroy_process_group()
