"""deepspeed: ZeRO with overlapped reductions, with or without the optimizer on the host."""

from __future__ import annotations

import os
import sys
import tempfile

os.environ.update(DS_ACCELERATOR="cuda", RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")

import deepspeed
import torch

from racegate.interpose import observe

torch.set_num_threads(1)
torch.manual_seed(0)
with tempfile.TemporaryDirectory() as folder:
    torch.distributed.init_process_group(
        "cpu:gloo,cuda:gloo", init_method=f"file://{folder}/store", rank=0, world_size=1
    )
    zero = {
        "stage": 2,
        "overlap_comm": True,
        "contiguous_gradients": True,
        "reduce_bucket_size": 300,
        "allgather_bucket_size": 300,
    }
    if sys.argv[1] == "host":
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    model = torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range(4)])
    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), lr=0.01),
        config={
            "train_micro_batch_size_per_gpu": 4,
            "zero_allow_untested_optimizer": True,
            "zero_force_ds_cpu_optimizer": False,
            "zero_optimization": zero,
        },
        dist_init_required=False,
    )
    losses = []
    for _ in range(3):
        loss = engine(torch.randn(4, 16).to("cuda")).pow(2).mean()
        engine.backward(loss)
        engine.step()
        losses.append(loss.detach().float())
    observe("losses", torch.stack(losses))
    torch.distributed.destroy_process_group()
