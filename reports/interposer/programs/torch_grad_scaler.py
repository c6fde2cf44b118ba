"""torch: a scaler whose scale is on the host, as the loss is, with a fused optimizer."""

from __future__ import annotations

import torch

from racegate.interpose import observe

weight = torch.ones(4, device="cuda", requires_grad=True)
weight.grad = torch.full_like(weight, float("inf"))
optimizer = torch.optim.SGD([weight], lr=0.1, fused=True)
scaler = torch.amp.GradScaler(init_scale=5)
scaler.scale(torch.ones(5))  # on the host, so that the scale is there too
scaler.step(optimizer)  # must be skipped: the gradient is infinite
observe("weight", weight.detach())
