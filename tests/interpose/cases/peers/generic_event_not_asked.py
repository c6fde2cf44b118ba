# expect = "conflict"
# says = ["d2h writes it on stream 1", "host read (sum)"]
"""torch.Event, which every device has, and nobody asks it."""

import torch

source = torch.arange(64.0, device="cuda")
host = torch.zeros(64, pin_memory=True)
side, event = torch.cuda.Stream(), torch.Event(enable_timing=True)
assert event.query()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    host.copy_(source, non_blocking=True)
    event.record(side)
print(float(host.sum()))
