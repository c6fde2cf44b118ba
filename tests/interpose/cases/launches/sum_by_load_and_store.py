# expect = "conflict"
# command = ["kernels"]
# says = ["add_up"]
"""Programs of a launch add to one number by a load, an addition and a store."""

import torch
import triton
import triton.language as tl


@triton.jit
def add_up(x, total, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(total, tl.load(total) + tl.sum(tl.load(x + at)))


x, total = torch.ones(64, device="cuda"), torch.zeros(1, device="cuda")
add_up[(4,)](x, total, B=16)
torch.cuda.synchronize()
