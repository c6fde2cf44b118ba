"""liger-kernel: its fused kernels in a training step."""

from __future__ import annotations

import torch
from liger_kernel.transformers import LigerCrossEntropyLoss, LigerRMSNorm

from racegate.interpose import observe

torch.set_num_threads(1)
torch.manual_seed(0)
norm = LigerRMSNorm(32).to("cuda")
head = torch.nn.Linear(32, 64, bias=False, device="cuda")
loss_of = LigerCrossEntropyLoss()
targets = torch.arange(4, device="cuda")
losses = []
for _ in range(2):
    hidden = torch.randn(4, 32).pin_memory().to("cuda", non_blocking=True)
    loss = loss_of(head(norm(hidden)), targets)
    loss.backward()
    losses.append(loss.detach())
observe("losses", torch.stack(losses))
