"""Megatron-core: gradients are reduced during the backward pass, in two optimizer instances."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.transformer import TransformerConfig

from racegate.interpose import observe

rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
parallel_state.initialize_model_parallel(num_distributed_optimizer_instances=2)
torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range(3)]).cuda()
config = DistributedDataParallelConfig(
    overlap_grad_reduce=True,
    use_distributed_optimizer=True,
    num_distributed_optimizer_instances=2,
    bucket_size=300,
)
# As Megatron's own training loop does it.
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    wrapped = DistributedDataParallel(
        TransformerConfig(num_layers=1, hidden_size=16, num_attention_heads=1), config, model
    )
torch.cuda.current_stream().wait_stream(side)
sums = []
for step in range(2):
    wrapped.zero_grad_buffer()
    wrapped(torch.full((4, 16), step + rank + 1.0, device="cuda")).pow(2).mean().backward()
    wrapped.finish_grad_sync()
    sums.append(torch.stack([one.main_grad.sum() for one in model.parameters()]))
observe("gradients", torch.stack(sums))
dist.destroy_process_group()
