# expect = "conflict"
# command = ["torch", "run", "--ranks", "2"]
# says = ["rank 0", "rank 1"]
"""One rank leaves out the last collective, for which the other waits."""

import os

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
x = torch.ones(4, device="cuda")
dist.all_reduce(x)
if rank == 0:
    dist.all_reduce(x)
x.tolist()
dist.destroy_process_group()
