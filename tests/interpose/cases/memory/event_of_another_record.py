# expect = "conflict"
# says = ["host read (sum)", "1 conflict"]
"""The last event of a loop is not waited for. Others lay at its address before it, and were."""

import torch

side = torch.cuda.Stream()
host = torch.zeros(64, pin_memory=True)
device = torch.ones(64, device="cuda")
torch.cuda.synchronize()
for step in range(100):
    landed = torch.cuda.Event()
    with torch.cuda.stream(side):
        host.copy_(device, non_blocking=True)
        landed.record()
    if step < 99:
        landed.synchronize()
    host.sum()
torch.cuda.synchronize()
