# expect = "silent"
# twin = ["begins_early"]
# says = ["no conflict"]
"""A launch that begins early waits before it reads."""

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def produce(x, y, N: tl.constexpr):
    at = tl.arange(0, N)
    gdc_launch_dependents()
    tl.store(y + at, tl.load(x + at) * 2)


@triton.jit
def consume(y, z, N: tl.constexpr):
    at = tl.arange(0, N)
    gdc_wait()
    tl.store(z + at, tl.load(y + at) + 1)


x, y, z = (torch.ones(64, device="cuda") for _ in range(3))
torch.cuda.synchronize()
produce[(1,)](x, y, N=64)
consume[(1,)](y, z, N=64, launch_pdl=True)
torch.cuda.synchronize()
