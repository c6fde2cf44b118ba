# expect = "silent"
"""Layers that CUDA computes with kernels of its own: forward and backward as on the host."""

import copy

import torch

torch.manual_seed(0)
batch = torch.randn(2, 5, 8)
for layer in (
    torch.nn.LSTM(8, 6, 2, batch_first=True),
    torch.nn.GRU(8, 6, batch_first=True),
    torch.nn.RMSNorm(8),
):
    results = []
    for device in ("cpu", "cuda"):
        there = copy.deepcopy(layer).to(device)
        given = batch.clone().to(device).detach().requires_grad_()
        made = there(given)
        made = made[0] if isinstance(made, tuple) else made
        made.square().sum().backward()
        results.append([made, given.grad, *(one.grad for one in there.parameters())])
    for expected, actual in zip(*results, strict=True):
        torch.testing.assert_close(actual.cpu(), expected)
