"""torch.autograd.graph.save_on_cpu(pin_memory=True): saved tensors wait on the host."""

from __future__ import annotations

import torch

from racegate.interpose import observe

torch.set_num_threads(1)
torch.manual_seed(0)
layers = [module for _ in range(3) for module in (torch.nn.Linear(32, 32), torch.nn.GELU())]
model = torch.nn.Sequential(*layers).to("cuda")
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
losses = []
for _ in range(3):
    inputs = torch.randn(4, 32).pin_memory().to("cuda", non_blocking=True)
    optimizer.zero_grad()
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        loss = model(inputs).pow(2).mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.detach())
observe("losses", torch.stack(losses))
