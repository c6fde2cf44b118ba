# expect = "silent"
# command = ["kernels"]
# twin = ["sum_by_load_and_store"]
"""Programs of a launch add to one number by atomic operations."""

import torch
import triton
import triton.language as tl


@triton.jit
def add_up(x, total, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(total, tl.sum(tl.load(x + at)))


x, total = torch.ones(64, device="cuda"), torch.zeros(1, device="cuda")
add_up[(4,)](x, total, B=16)
torch.cuda.synchronize()
