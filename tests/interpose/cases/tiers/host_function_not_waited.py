# expect = "conflict"
# says = ["host write (mul_) writes it on stream 1", "h2d reads it on stream 2"]
"""A host function writes what another stream uploads, and nothing orders the two: that the host
launched the one before the other is no order.
"""

import ctypes

import torch
from shared.driver import DRIVER

host, taken = torch.ones(8, pin_memory=True), torch.zeros(8, device="cuda")
stream, other = torch.cuda.Stream(), torch.cuda.Stream()
torch.cuda.synchronize()
body = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: (host.mul_(2.0), None)[1])
assert not DRIVER.cuLaunchHostFunc(ctypes.c_void_p(stream.cuda_stream), body, None)
with torch.cuda.stream(other):
    taken.copy_(host, non_blocking=True)
torch.cuda.synchronize()
