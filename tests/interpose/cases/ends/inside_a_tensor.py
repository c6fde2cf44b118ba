# expect = "silent"
# twin = ["outside_all_memory"]
"""A kernel follows the address of a tensor that lives."""

import torch
import triton
import triton.language as tl


@triton.jit
def follow(x, y):
    tl.store(y, tl.load(tl.load(x).to(tl.pointer_type(tl.float32))))


there = torch.ones(1, device="cuda")
x = torch.full((1,), there.data_ptr(), device="cuda")
follow[(1,)](x, torch.zeros(1, device="cuda"))
