# expect = "conflict"
# command = ["kernels"]
# says = ["add_up"]
"""The last program reads the parts of the others behind a counter that orders nothing."""

import torch
import triton
import triton.language as tl


@triton.jit
def add_up(x, parts, count, total, B: tl.constexpr, P: tl.constexpr):
    program = tl.program_id(0)
    part = tl.sum(tl.load(x + program * B + tl.arange(0, B)))
    tl.store(parts + program, part)
    if tl.atomic_add(count, 1, sem="relaxed") == P - 1:
        tl.store(total, tl.sum(tl.load(parts + tl.arange(0, P))))


x, parts = torch.ones(64, device="cuda"), torch.zeros(4, device="cuda")
count = torch.zeros(1, dtype=torch.int32, device="cuda")
total = torch.zeros(1, device="cuda")
add_up[(4,)](x, parts, count, total, B=16, P=4)
torch.cuda.synchronize()
