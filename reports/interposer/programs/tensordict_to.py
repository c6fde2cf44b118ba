"""tensordict: nested batches to the device, whose values come back to the host."""

from __future__ import annotations

import torch
from tensordict import TensorDict

from racegate.interpose import observe

torch.set_num_threads(1)
torch.manual_seed(0)
sums = []
for _ in range(3):
    batch = TensorDict({"a": torch.randn(8, 4), "b": {"c": torch.randn(8)}}, batch_size=[8])
    moved = batch.pin_memory().to("cuda")
    back = moved.apply(lambda value: value * 2).to("cpu")
    sums.append(back["a"].sum() + back["b", "c"].sum())
observe("sums", torch.stack(sums))
