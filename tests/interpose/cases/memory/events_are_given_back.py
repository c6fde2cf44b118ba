# expect = "silent"
# says = ["no conflict"]
# twin = ["event_of_another_record"]
"""A program of many steps makes events in each of them: what they took is given back, and an event
that comes to lie where another lay is not taken for it.
"""

import torch

STEPS = 2000

side, compute = torch.cuda.Stream(), torch.cuda.current_stream()
host = torch.zeros(64, pin_memory=True)
device = torch.ones(64, device="cuda")
torch.cuda.synchronize()
places = set()
for _ in range(STEPS):
    computed, landed = torch.cuda.Event(), torch.cuda.Event()
    device.add_(1)
    computed.record()
    side.wait_event(computed)
    with torch.cuda.stream(side):
        host.copy_(device, non_blocking=True)
        landed.record()
    landed.synchronize()
    host.sum()
    compute.wait_event(landed)
    places |= {computed.cuda_event, landed.cuda_event}
assert len(places) < 2 * STEPS, "none came to lie where another had lain"
