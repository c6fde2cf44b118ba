"""timm: its PrefetchLoader normalises the next batch on a stream while the model trains."""

from __future__ import annotations

import torch
from timm.data.loader import PrefetchLoader
from torch.utils.data import DataLoader, TensorDataset

from racegate.interpose import observe

torch.set_num_threads(1)
torch.manual_seed(0)
images = torch.randint(0, 256, (24, 3, 8, 8), dtype=torch.uint8)
data = TensorDataset(images, torch.randint(0, 4, (24,)))
loader = PrefetchLoader(DataLoader(data, batch_size=4, pin_memory=True))
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 4)).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
losses = []
for inputs, targets in loader:
    loss = torch.nn.functional.cross_entropy(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.detach())
observe("losses", torch.stack(losses))
