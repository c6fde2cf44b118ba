# expect = "not modelled"
# says = ["NCCL", "gloo"]
"""A process group of NCCL is refused by its name."""

import torch
import torch.distributed

store = torch.distributed.HashStore()
torch.distributed.init_process_group("nccl", store=store, rank=0, world_size=1)
torch.distributed.all_reduce(torch.ones(4, device="cuda"))
