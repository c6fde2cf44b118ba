# expect = "silent"
# twin = ["collective_not_waited"]
"""The result of the collective is used once it was waited for, on the device and on the host."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
total, host = torch.ones(1000, device="cuda"), torch.ones(1000, pin_memory=True)
for _ in range(3):
    work = dist.all_reduce(total, async_op=True)
    weight = torch.ones(3, device="cuda", requires_grad=True)
    weight.sum().backward()
    work.wait()
    total.mul_(2.0)
    host.copy_(total, non_blocking=True)
    torch.cuda.synchronize()
    dist.all_reduce(host)
    host.add_(1.0)
