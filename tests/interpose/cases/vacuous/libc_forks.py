# expect = "inconclusive"
# says = ["1 x processes forked by the program", "which nobody judges"]
"""A child that C code forked does some of the work."""

import ctypes
import os

import torch

here = torch.ones(3, device="cuda")
pid = ctypes.CDLL(None).fork()
if pid == 0:
    print((here + 1).sum().item(), flush=True)
    os._exit(0)
os.waitpid(pid, 0)
print(here.sum().item())
