"""torchao: an optimizer whose states and steps are on the host; gradients and weights are copied.

The argument says whether gradients are freed once they are copied (`offload`, `keep`).
"""

from __future__ import annotations

import sys

import torch
from torchao.optim import CPUOffloadOptimizer

from racegate.interpose import observe

torch.set_num_threads(1)
torch.manual_seed(0)
layers = [module for _ in range(3) for module in (torch.nn.Linear(64, 64), torch.nn.GELU())]
model = torch.nn.Sequential(*layers).to("cuda")
optimizer = CPUOffloadOptimizer(
    model.parameters(), torch.optim.AdamW, offload_gradients=sys.argv[1] == "offload", lr=0.01
)
losses = []
for _ in range(3):
    inputs = torch.randn(8, 64).pin_memory().to("cuda", non_blocking=True)
    loss = model(inputs).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.detach())
observe("losses", torch.stack(losses))
observe("weight", model[0].weight)
