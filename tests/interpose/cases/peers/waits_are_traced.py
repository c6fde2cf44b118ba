# expect = "silent"
# says = ["no conflict"]
"""Who traces the runtime, as torch's own sanitizer does, is told of waits inside operators too."""

import torch
from torch.cuda import _gpu_trace

torch._C._activate_gpu_trace()
waited = []
_gpu_trace.register_callback_for_stream_synchronization(waited.append)
x, side = torch.ones(5, device="cuda"), torch.cuda.Stream()
x.nonzero()
assert waited == [0], waited
x.sum().item()
assert waited == [0, 0], waited
with torch.cuda.stream(side):
    side.wait_stream(torch.cuda.default_stream())
    x[x > 0]
    assert waited == [0, 0, side.cuda_stream], waited
x + x
assert len(waited) == 3, waited
