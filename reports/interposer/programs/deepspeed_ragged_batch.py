"""deepspeed: ragged batches of its inference engine, put together in pinned memory and uploaded.

The pinned buffers, which a compiled helper makes, are made by torch.
"""

from __future__ import annotations

import os
from types import SimpleNamespace

os.environ["DS_ACCELERATOR"] = "cuda"

import torch
from deepspeed.inference.v2.ragged import ragged_wrapper
from deepspeed.inference.v2.ragged.manager_configs import DSStateManagerConfig

from racegate.interpose import observe


def pinned(like: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(like, device="cpu", pin_memory=True)


torch.set_num_threads(1)
helper = SimpleNamespace(load=lambda: SimpleNamespace(allocate_fast_host_buffer=pinned))
ragged_wrapper.RaggedUtilsBuilder = lambda: helper
config = DSStateManagerConfig(max_ragged_batch_size=64, max_ragged_sequence_count=8)
batch = ragged_wrapper.RaggedBatchWrapper(config)
sequence = SimpleNamespace(seen_tokens=0, kv_blocks_ptr=0)
sums = []
for step in range(3):
    batch.clear()
    batch.insert_sequence(sequence, torch.arange(8) + 10 * step)
    batch.finalize()
    sums.append(batch.input_ids().sum())  # stands for the forward pass
observe("sums", torch.stack(sums))
