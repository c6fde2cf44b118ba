"""A region uploads a pinned batch without waiting, and the host fills the batch again.

Run as `pinned_input_overwritten.py [waits]`: with waits the upload is waited for.
"""

import sys

import torch

import racegate


@torch.compile
def normalised(batch):
    there = batch.to("cuda", non_blocking=True)
    return there * 2 - 1


def main(waits):
    batch = torch.empty(64, pin_memory=True)
    results = []
    for number in range(3):
        batch.fill_(number)
        results.append(normalised(batch))
        if waits:
            torch.cuda.current_stream().synchronize()
    racegate.observe("results", torch.stack(results).sum(1))


main(waits=sys.argv[1:] == ["waits"])
