# expect = "conflict"
"""A kernel follows an address where no memory is, and the program ends with what CUDA says."""

import torch
import triton
import triton.language as tl


@triton.jit
def follow(x, y):
    tl.store(y, tl.load(tl.load(x).to(tl.pointer_type(tl.float32))))


x = torch.full((1,), 8, device="cuda")
follow[(1,)](x, torch.zeros(1, device="cuda"))
