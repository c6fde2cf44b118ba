"""accelerate: weights kept on the host (`cpu`) or on disk (`disk`), uploaded by hooks per layer."""

from __future__ import annotations

import sys
import tempfile

import torch
from accelerate import cpu_offload, disk_offload

from racegate.interpose import observe

torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(4)])
with tempfile.TemporaryDirectory() as folder, torch.no_grad():
    if sys.argv[1] == "cpu":
        model = cpu_offload(model, execution_device=torch.device("cuda:0"))
    else:
        model = disk_offload(model, folder, execution_device=torch.device("cuda:0"))
    for index in range(2):
        inputs = torch.randn(4, 32).pin_memory().to("cuda", non_blocking=True)
        observe(f"outputs {index}", model(inputs).cpu())
