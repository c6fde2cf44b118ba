# expect = "silent"
"""Attention in 16 bits takes its softmax in 32, as models of Hugging Face do; so does a loss."""

import torch
from torch.nn import functional

for dtype in (torch.float16, torch.bfloat16):
    for softmax in (functional.softmax, functional.log_softmax):
        scores = torch.randn(4, 8, device="cuda", dtype=dtype, requires_grad=True)
        weights = softmax(scores, dim=-1, dtype=torch.float32)
        assert torch.equal(weights, softmax(scores.float(), dim=-1))
        (weights * torch.arange(8, device="cuda")).sum().backward()
        assert weights.dtype is torch.float32 and scores.grad.dtype is dtype
