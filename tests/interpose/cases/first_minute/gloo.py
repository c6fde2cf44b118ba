# expect = "silent"
# twin = ["nccl"]
"""The same with gloo."""

import torch
import torch.distributed

store = torch.distributed.HashStore()
torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
torch.distributed.all_reduce(torch.ones(4, device="cuda"))
torch.cuda.synchronize()
