"""PyTorch's DataLoader with its pinning thread; the argument is the number of worker processes."""

from __future__ import annotations

import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

from racegate.interpose import observe

torch.set_num_threads(1)
torch.manual_seed(0)
data = TensorDataset(torch.randn(24, 16), torch.randn(24, 1))
loader = DataLoader(data, batch_size=4, pin_memory=True, num_workers=int(sys.argv[1]))
model = torch.nn.Linear(16, 1).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
losses = []
for inputs, targets in loader:
    predicted = model(inputs.to("cuda", non_blocking=True))
    loss = torch.nn.functional.mse_loss(predicted, targets.to("cuda", non_blocking=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.detach())
observe("losses", torch.stack(losses))
