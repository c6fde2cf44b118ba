"""deepspeed: ZeRO on ranks, whose gradients are reduced while the backward pass runs.

Arguments: the stage, and whether gradients are put together (contiguous) or sent as they are.
"""

from __future__ import annotations

import os
import sys

os.environ["DS_ACCELERATOR"] = "cuda"

import deepspeed
import torch

from racegate.interpose import observe

rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
torch.distributed.init_process_group("nccl")
torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range(4)])
engine, *_ = deepspeed.initialize(
    model=model,
    optimizer=torch.optim.AdamW(model.parameters(), lr=0.01),
    config={
        "train_micro_batch_size_per_gpu": 4,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "zero_optimization": {
            "stage": int(sys.argv[1]),
            "overlap_comm": True,
            "contiguous_gradients": sys.argv[2] == "contiguous",
            "reduce_bucket_size": 300,
            "allgather_bucket_size": 300,
        },
    },
    dist_init_required=False,
)
losses = []
for step in range(3):
    loss = engine(torch.full((4, 16), step + rank + 1.0, device="cuda")).pow(2).mean()
    engine.backward(loss)
    engine.step()
    losses.append(loss.detach().float())
observe("losses", torch.stack(losses))
torch.distributed.destroy_process_group()
