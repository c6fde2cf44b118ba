"""What is timed: `programs.py NAME ROUNDS OUT.json` writes down what its loop cost.

Small tensors, so that what is timed is the device and not the arithmetic.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

WIDTH = 16


def training(rounds: int) -> None:
    """A model of small layers, its backward pass and AdamW, batches uploaded from pinned memory."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(WIDTH, WIDTH),
        torch.nn.ReLU(),
        torch.nn.LayerNorm(WIDTH),
        torch.nn.Linear(WIDTH, 1),
    ).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    staging = torch.randn(8, WIDTH).pin_memory()
    uploaded = torch.cuda.Event()
    for _ in range(rounds):
        batch = staging.to("cuda", non_blocking=True)
        uploaded.record()
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        uploaded.synchronize()
        staging.add_(0.001)
    torch.cuda.synchronize()


def copying(rounds: int) -> None:
    """A copy stream and a compute stream with two staging buffers, ordered by events."""
    copies, compute = torch.cuda.Stream(), torch.cuda.current_stream()
    sources = [torch.zeros(64, pin_memory=True) for _ in range(2)]
    targets = [torch.zeros(64, pin_memory=True) for _ in range(2)]
    inputs = [torch.zeros(64, device="cuda") for _ in range(2)]
    outputs = [torch.zeros(64, device="cuda") for _ in range(2)]
    uploaded = [torch.cuda.Event() for _ in range(2)]
    computed = [torch.cuda.Event() for _ in range(2)]
    landed = [torch.cuda.Event() for _ in range(2)]
    torch.cuda.synchronize()
    for step in range(rounds):
        slot = step % 2
        landed[slot].synchronize()
        sources[slot].fill_(step)
        with torch.cuda.stream(copies):
            copies.wait_event(computed[slot])
            inputs[slot].copy_(sources[slot], non_blocking=True)
            uploaded[slot].record()
        compute.wait_event(uploaded[slot])
        torch.mul(inputs[slot], 2, out=outputs[slot])
        outputs[slot].add_(1)
        computed[slot].record()
        with torch.cuda.stream(copies):
            copies.wait_event(computed[slot])
            targets[slot].copy_(outputs[slot], non_blocking=True)
            landed[slot].record()
    torch.cuda.synchronize()


def serving(rounds: int) -> None:
    """A persistent batch: rows uploaded, a cache written by index, tokens downloaded."""
    torch.manual_seed(0)
    rows, heads = 8, 4
    tokens_cpu = torch.zeros(rows, dtype=torch.int64, pin_memory=True)
    slots_cpu = torch.arange(rows, dtype=torch.int64).pin_memory()
    out_cpu = torch.zeros(rows, dtype=torch.int64, pin_memory=True)
    embedding = torch.randn(64, WIDTH, device="cuda")
    weight = torch.randn(WIDTH, WIDTH, device="cuda")
    cache = torch.zeros(64, heads, WIDTH // heads, device="cuda")
    downloads, sampled = torch.cuda.Stream(), torch.cuda.Event()
    torch.cuda.synchronize()
    for step in range(rounds):
        tokens_cpu.copy_(out_cpu)
        slots_cpu.numpy()[:] = (torch.arange(rows) + step).remainder(64).numpy()
        tokens = tokens_cpu.to("cuda", non_blocking=True)
        slots = slots_cpu.to("cuda", non_blocking=True)
        hidden = torch.relu(embedding[tokens] @ weight)
        cache.index_copy_(0, slots, hidden.view(rows, heads, -1))
        scores = (cache[slots].flatten(1) * hidden) @ embedding.t()
        chosen = scores.softmax(-1).argmax(-1)
        sampled.record()
        with torch.cuda.stream(downloads):
            downloads.wait_event(sampled)
            out_cpu.copy_(chosen, non_blocking=True)
        chosen.record_stream(downloads)
        downloads.synchronize()
    torch.cuda.synchronize()


PROGRAMS: dict[str, Callable[[int], None]] = {
    "training": training,
    "copying": copying,
    "serving": serving,
}


def main() -> None:
    name, rounds = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(1)  # threads that wait for each other burn CPU time
    PROGRAMS[name](2)  # what happens once: imports, plans of operators
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start_s = time.process_time()
    PROGRAMS[name](rounds)
    cpu_s = time.process_time() - start_s
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    Path(sys.argv[3]).write_text(json.dumps({"cpu_s": cpu_s, "grown_kib": grown_kib}))


if __name__ == "__main__":
    main()
