"""flash-linear-attention: a cache moved to the host, whose beams are then reordered there."""

from __future__ import annotations

import torch
from fla.models.cache_utils import FLALayer

from racegate.interpose import observe

torch.manual_seed(0)
layer = FLALayer()
layer.lazy_initialization(torch.ones(1, device="cuda"))
for step in range(2):
    state = torch.randn(4, 2, 8, 8).to("cuda") * (step + 1)
    layer.update(recurrent_state=state, offset=1)
layer.offload()
layer.reorder_cache(torch.tensor([3, 2, 1, 0]))
layer.prefetch()
observe("state", layer.state["recurrent_state"])
