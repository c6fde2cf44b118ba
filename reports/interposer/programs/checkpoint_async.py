"""torch.distributed.checkpoint: asynchronous saves from pinned memory while training goes on.

The argument is the stager: `default` (its own thread and stream) or `blocking`.
"""

from __future__ import annotations

import sys
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch.distributed.checkpoint.staging import (
    BlockingAsyncStager,
    DefaultStager,
    StagingOptions,
)

from racegate.interpose import observe

torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Linear(32, 32).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
options = StagingOptions(
    use_pinned_memory=True,
    use_shared_memory=False,
    use_async_staging=True,
    use_non_blocking_copy=True,
)
default = sys.argv[1] == "default"
stager = DefaultStager(options) if default else BlockingAsyncStager(cache_staged_state_dict=True)
with tempfile.TemporaryDirectory() as folder:
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
    for index in range(3):
        loss = model(torch.randn(4, 32, device="cuda")).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        response = checkpoint.async_save(
            {"weight": model.weight.detach(), "bias": model.bias.detach()},
            checkpoint_id=f"{folder}/{index}",
            async_stager=stager,
        )
        if default:
            response.staging_completion.result()
            response = response.upload_completion
        optimizer.step()
        response.result()
        saved = {"weight": torch.empty(32, 32), "bias": torch.empty(32)}
        checkpoint.load(saved, checkpoint_id=f"{folder}/{index}")
        observe(f"saved {index}", saved["weight"])
    stager.close()
    dist.destroy_process_group()
