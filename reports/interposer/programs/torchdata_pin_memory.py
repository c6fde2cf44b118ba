"""torchdata: batches pinned by a thread ahead of the training loop, which uploads them."""

from __future__ import annotations

import torch
from torchdata.nodes import Batcher, IterableWrapper, Loader, Mapper, PinMemory, Prefetcher

from racegate.interpose import observe

torch.set_num_threads(1)
torch.manual_seed(0)
rows = list(torch.randn(16, 8))
node = Mapper(Batcher(IterableWrapper(rows), batch_size=4), torch.stack)
loader = Loader(Prefetcher(PinMemory(node), prefetch_factor=2))
model = torch.nn.Linear(8, 8, device="cuda")
losses = []
for batch in loader:
    losses.append(model(batch.to("cuda", non_blocking=True)).pow(2).mean().detach())
observe("losses", torch.stack(losses))
