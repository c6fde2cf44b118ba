# expect = "silent"
# twin = ["gluon"]
"""A kernel in Triton, on a tensor that is on the GPU because all are."""

import torch
import triton
from triton import language as tl


@triton.jit
def add_one(values, count: tl.constexpr):
    at = tl.arange(0, count)
    tl.store(values + at, tl.load(values + at) + 1)


torch.set_default_device("cuda")
values = torch.zeros(32)
add_one[(1,)](values, 32)
assert values.sum().item() == 32
