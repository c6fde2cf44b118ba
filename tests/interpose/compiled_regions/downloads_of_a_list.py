"""A region downloads a list without waiting, waits for an event of each, and joins them on the
host: pytorch/pytorch#174695. This compiler waits behind each copy.
"""

import torch

import racegate


def gather(parts):
    there, events = [], []
    for part in parts:
        there.append(part.to(device="cpu", non_blocking=True))
        events.append(torch.Event())
        events[-1].record()
    for event in events:
        event.synchronize()
    return torch.cat(there)


parts = [torch.full((64,), float(number), device="cuda") for number in range(4)]
torch.cuda.synchronize()
racegate.observe("all", torch.compile(gather)(parts))
