# expect = "conflict"
# says = ["consume"]
"""A launch that begins early reads what the one in front of it has not written yet."""

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents


@triton.jit
def produce(x, y, N: tl.constexpr):
    at = tl.arange(0, N)
    gdc_launch_dependents()
    tl.store(y + at, tl.load(x + at) * 2)


@triton.jit
def consume(y, z, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(z + at, tl.load(y + at) + 1)


x, y, z = (torch.ones(64, device="cuda") for _ in range(3))
torch.cuda.synchronize()
produce[(1,)](x, y, N=64)
consume[(1,)](y, z, N=64, launch_pdl=True)
torch.cuda.synchronize()
