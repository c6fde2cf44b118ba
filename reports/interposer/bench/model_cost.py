"""What a model of middle size costs: `model_cost.py cpu|cuda WIDTH STEPS`, with `racegate torch
run` in front of it for `cuda`. Prints CPU milliseconds of a step, of all threads of the process.

A transformer of four layers, batches of 8 times 64 tokens, forward, backward and AdamW, uploaded
from pinned memory and its loss read back in each step.
"""

from __future__ import annotations

import sys
import time

import torch

LAYERS, BATCH, TOKENS = 4, 8, 64


def main() -> None:
    device, width, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)  # threads that wait for each other burn CPU time
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    staging = torch.randn(BATCH, TOKENS, width)
    if device == "cuda":
        staging = staging.pin_memory()

    def step() -> float:
        batch = staging.to(device, non_blocking=True)
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    step()  # what happens once: imports, plans of operators
    begun_s = time.process_time()
    for _ in range(steps):
        step()
    print(f"{device} width {width}: {(time.process_time() - begun_s) / steps * 1e3:.1f} ms a step")


if __name__ == "__main__":
    main()
