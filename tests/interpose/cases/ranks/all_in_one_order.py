# expect = "silent"
# command = ["torch", "run", "--ranks", "2"]
# twin = ["another_collective", "one_leaves_out_the_last", "orders_of_two_groups"]
# says = ["no conflict"]
"""Two ranks issue the same collectives of two communicators in one order."""

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
for group, one in zip(groups, (first, second), strict=True):
    dist.all_reduce(one, group=group)
dist.broadcast(first, 0)
assert first.tolist() == second.tolist() == [2.0] * 4
dist.destroy_process_group()
