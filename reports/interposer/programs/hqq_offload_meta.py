"""hqq: a quantised layer whose scales are in pinned memory and are uploaded for each use."""

from __future__ import annotations

import torch
from hqq.core.quantize import BaseQuantizeConfig, HQQLinear

from racegate.interpose import observe

torch.set_num_threads(1)
torch.manual_seed(0)
config = BaseQuantizeConfig(nbits=4, group_size=64, axis=1)
layers = [
    HQQLinear(torch.nn.Linear(64, 64), config, compute_dtype=torch.float32, device="cuda")
    for _ in range(2)
]
hidden = torch.randn(4, 64).to("cuda")
with torch.no_grad():
    for layer in layers:
        hidden = layer(hidden)
observe("hidden", hidden)
