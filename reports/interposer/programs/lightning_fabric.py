"""lightning: a training loop of Fabric, batches of pinned memory moved by its own data loader."""

from __future__ import annotations

import sys

import torch
from lightning.fabric import Fabric
from torch.utils.data import DataLoader, TensorDataset

from racegate.interpose import observe

torch.set_num_threads(1)
torch.manual_seed(0)
fabric = Fabric(accelerator="cuda", devices=1, precision=sys.argv[1])
model = torch.nn.Linear(16, 16)
model, optimizer = fabric.setup(model, torch.optim.Adam(model.parameters(), lr=0.1, fused=True))
loader = DataLoader(TensorDataset(torch.randn(12, 16)), batch_size=4, pin_memory=True)
losses = []
for (batch,) in fabric.setup_dataloaders(loader):
    optimizer.zero_grad()
    loss = model(batch).pow(2).mean()
    fabric.backward(loss)
    optimizer.step()
    losses.append(loss.detach())
observe("losses", torch.stack(losses))
