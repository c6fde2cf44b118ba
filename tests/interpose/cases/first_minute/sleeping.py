# expect = "silent"
"""What stands behind `torch.cuda._sleep` has not happened when it is first asked for."""

import torch

host = torch.zeros(4, pin_memory=True)
source = torch.ones(4, device="cuda")
torch.cuda.synchronize()
side, event = torch.cuda.Stream(), torch.cuda.Event()
with torch.cuda.stream(side):
    torch.cuda._sleep(1_000_000)
    host.copy_(source, non_blocking=True)
    event.record()
assert not event.query()
while not event.query():
    pass
assert host.sum() == 4
