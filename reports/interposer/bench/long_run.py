"""A program of many steps: `racegate torch run long_run.py STEPS`. Prints the memory that its
process holds, and its CPU time, along the way.

A step uploads a batch on a copy stream into one of two buffers, runs a small model forward and
backward on the compute stream, updates it, and downloads the loss; the host learns of every step
with the next upload, as in a loop of training that logs.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch

WIDTH = 16
SHOWN = (1_000, 10_000, 20_000, 50_000, 100_000)


def resident_kib() -> int:
    """Memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4


def main() -> None:
    steps = int(sys.argv[1])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 1)
    ).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    copies, compute = torch.cuda.Stream(), torch.cuda.current_stream()
    staging = [torch.zeros(8, WIDTH, pin_memory=True) for _ in range(2)]
    losses = [torch.zeros((), pin_memory=True) for _ in range(2)]
    done: list[torch.cuda.Event | None] = [None, None]
    torch.cuda.synchronize()
    for step in range(steps):
        slot = step % 2
        before = done[slot]
        if before is not None:
            before.synchronize()
            losses[slot].item()
        staging[slot].fill_(step % 7)
        uploaded, done[slot] = torch.cuda.Event(), torch.cuda.Event()
        with torch.cuda.stream(copies):
            batch = staging[slot].to("cuda", non_blocking=True)
            uploaded.record()
        compute.wait_event(uploaded)
        batch.record_stream(compute)
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses[slot].copy_(loss.detach(), non_blocking=True)
        done[slot].record()
        if step + 1 in SHOWN:
            told = f"{step + 1} steps: {resident_kib() >> 10} MiB"
            print(f"{told}, {time.process_time():.1f} CPU s", flush=True)
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
