# expect = "conflict"
# command = ["torch", "run", "--ranks", "2"]
# says = ["MISMATCH", "all_reduce", "broadcast"]
"""Two ranks issue different collectives at one number of a communicator."""

import os

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
x = torch.ones(4, device="cuda")
if rank == 0:
    dist.all_reduce(x)
else:
    dist.broadcast(x, 0)
torch.cuda.synchronize()
dist.destroy_process_group()
