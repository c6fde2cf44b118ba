# expect = "silent"
# twin = ["generic_event_not_asked"]
# says = ["no conflict"]
"""torch.Event, which every device has: a true answer to its query is an edge, and there is one."""

import torch

source = torch.arange(64.0, device="cuda")
host = torch.zeros(64, pin_memory=True)
side, event = torch.cuda.Stream(), torch.Event(enable_timing=True)
assert event.query()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    host.copy_(source, non_blocking=True)
    event.record(side)
asked = 0
while not event.query():
    asked += 1
    assert asked < 100, "it is never complete"
assert float(host.sum()) == 2016.0
