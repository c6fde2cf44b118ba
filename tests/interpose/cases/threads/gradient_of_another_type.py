# expect = "silent"
"""Autograd converts a gradient in the thread that calls it, before a thread of its own goes on;
also in a call from inside of another one.
"""

import torch

weight = torch.ones(8, 8, device="cuda", requires_grad=True)
inner = torch.ones(8, 8, device="cuda", requires_grad=True)
half = torch.ones(8, 8, device="cuda", dtype=torch.float16)


def again(_: torch.Tensor) -> None:
    with torch.enable_grad():
        (inner @ inner).backward(half)


product = weight @ weight
product.register_hook(again)
product.backward(half)
assert weight.grad is not None
weight.grad.mul_(2)
torch.cuda.synchronize()
