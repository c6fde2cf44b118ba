# expect = "conflict"
# says = ["h2d writes it on stream 1", "mul reads it on the default stream"]
"""A C++ thread of gloo writes the result of a collective that nobody waits for."""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
total = torch.ones(1000, device="cuda")
work = dist.all_reduce(total, async_op=True)
time.sleep(0.5)
(total * 2).sum().item()
weight = torch.ones(3, device="cuda", requires_grad=True)
weight.sum().backward()
total.mul_(2.0)
torch.cuda.synchronize()
