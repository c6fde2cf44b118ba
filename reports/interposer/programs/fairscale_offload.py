"""fairscale: a model whose shards are on the host, and on the device while they compute."""

from __future__ import annotations

import torch
from fairscale.experimental.nn.offload import OffloadModel

from racegate.interpose import observe

torch.set_num_threads(1)
torch.manual_seed(0)
layers = torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(4)])
model = OffloadModel(
    model=layers,
    device=torch.device("cuda"),
    offload_device=torch.device("cpu"),
    num_slices=2,
    checkpoint_activation=False,
)
outputs = []
with torch.no_grad():
    for _ in range(2):
        outputs.append(model(torch.ones(4, 32, device="cuda")).clone())
observe("outputs", torch.stack(outputs))
