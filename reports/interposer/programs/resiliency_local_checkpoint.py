"""nvidia-resiliency-ext: a checkpoint on the local disk, written while training waits."""

from __future__ import annotations

import tempfile

import torch
from nvidia_resiliency_ext.checkpointing.local.basic_state_dict import BasicTensorAwareStateDict
from nvidia_resiliency_ext.checkpointing.local.ckpt_managers.local_manager import (
    LocalCheckpointManager,
)

from racegate.interpose import observe

torch.set_num_threads(1)
torch.manual_seed(0)
with tempfile.TemporaryDirectory() as folder:
    torch.distributed.init_process_group(
        "cpu:gloo,cuda:gloo", init_method=f"file://{folder}/store", rank=0, world_size=1
    )
    weights = torch.randn(64, 64).to("cuda") * 2
    manager = LocalCheckpointManager(f"{folder}/checkpoints")
    manager.save(BasicTensorAwareStateDict({"weights": weights}), iteration=1, is_async=False)
    manager.find_latest()
    loaded, _ = manager.load()
    observe("what is on the disk", loaded.state_dict["weights"].cpu())
    torch.distributed.destroy_process_group()
