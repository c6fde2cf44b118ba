"""bitsandbytes: an optimizer whose states are in managed memory."""

from __future__ import annotations

import bitsandbytes
import torch

from racegate.interpose import observe

model = torch.nn.Linear(64, 64, device="cuda")
optimizer = bitsandbytes.optim.PagedAdamW8bit(model.parameters(), lr=0.1)
model(torch.ones(4, 64, device="cuda")).sum().backward()
optimizer.step()
observe("weight", model.weight)
