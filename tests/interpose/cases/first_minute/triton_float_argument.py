# expect = "silent"
"""A float is a float32 of the kernel: it has methods, and half precision is promoted by it."""

import torch
import triton
import triton.language as tl


@triton.jit
def scale(x, out, eps, N: tl.constexpr):
    at = tl.arange(0, N)
    eps = eps.to(tl.float32)
    product = tl.load(x + at) * eps
    tl.static_assert(product.dtype == tl.float32)
    tl.store(out + at, product)


x = torch.full((8,), 0.5, dtype=torch.float16, device="cuda")
out = torch.empty(8, device="cuda")
scale[(1,)](x, out, 1e-6, N=8)
assert torch.equal(out.cpu(), torch.full((8,), 0.5) * torch.tensor(1e-6))
