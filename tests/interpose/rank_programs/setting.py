"""What every program of ranks begins and ends with."""

from __future__ import annotations

import torch
import torch.distributed as dist


def begin(rank: int) -> None:
    """Each rank takes the GPU of its number."""
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")


def end() -> None:
    """As torch asks for it."""
    torch.cuda.synchronize()
    dist.destroy_process_group()


def full(value: float, size: int = 4) -> torch.Tensor:
    """A vector on the rank's GPU."""
    return torch.full((size,), float(value), device="cuda")
