"""cache-dit: layers kept in pinned host memory, uploaded ahead on copy streams."""

from __future__ import annotations

import sys

import torch
from cache_dit.offload import layerwise_offload

from racegate.interpose import observe

torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(4)])
model.train(sys.argv[1] == "train")
handle = layerwise_offload(
    model, module_names=[str(index) for index in range(4)], async_transfer=True, transfer_buckets=2
)
outputs = []
with torch.no_grad():
    for _ in range(2):
        outputs.append(model(torch.ones(4, 64, device="cuda")))
observe("outputs", torch.stack(outputs))
