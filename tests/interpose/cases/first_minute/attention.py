# expect = "silent"
"""Attention by each backend that a program can ask for, and flex attention, as the plain one."""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import flex_attention
from torch.nn.functional import scaled_dot_product_attention

torch.manual_seed(0)
given = [torch.randn(1, 2, 16, 16, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
for is_causal in (False, True):
    results = []
    for backend in (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION):
        leaves = [one.clone().requires_grad_() for one in given]
        with sdpa_kernel(backend):
            made = scaled_dot_product_attention(*leaves, is_causal=is_causal)
        made.float().square().sum().backward()
        results.append([made, *(leaf.grad for leaf in leaves)])
    for other in results[1:]:
        for expected, actual in zip(results[0], other, strict=True):
            torch.testing.assert_close(actual.float(), expected.float(), atol=0.03, rtol=0.03)
wide = [one.float() for one in given]
expected = scaled_dot_product_attention(*wide)
torch.testing.assert_close(flex_attention(*wide), expected, atol=1e-4, rtol=1e-4)
