"""optimum-quanto: quantised weights that move between host and device."""

from __future__ import annotations

import torch
from optimum.quanto import freeze, qint8, quantize

from racegate.interpose import observe

torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Linear(32, 32))
quantize(model, weights=qint8)
freeze(model)
outputs = []
with torch.no_grad():
    for _ in range(2):
        model.to("cuda", non_blocking=True)
        outputs.append(model(torch.ones(2, 32, device="cuda")))
        model.to("cpu", non_blocking=True)
observe("outputs", torch.stack(outputs))
