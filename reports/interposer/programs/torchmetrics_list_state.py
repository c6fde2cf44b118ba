"""torchmetrics: a metric with a list of values, on ranks of which one has seen no batch yet."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
import torchmetrics

from racegate.interpose import observe

rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
metric = torchmetrics.CatMetric().to("cuda")
if rank == 0:
    metric.update(torch.tensor([1.0, 2.0], device="cuda"))
value = metric.compute()
observe("value", value)
dist.destroy_process_group()
