"""A region runs on a side stream, and its result is read on the default stream.

Run as `region_on_a_side_stream.py [waits]`: with waits the side stream is waited for.
"""

import sys

import torch

import racegate


@torch.compile
def scaled(x):
    return torch.relu(x + 1) * 2


def main(waits):
    side, current = torch.cuda.Stream(), torch.cuda.current_stream()
    x = torch.arange(64.0, device="cuda") - 32
    side.wait_stream(current)
    with torch.cuda.stream(side):
        y = scaled(x)
    if waits:
        current.wait_stream(side)
    racegate.observe("sum", y.sum())
    torch.cuda.synchronize()


main(waits=sys.argv[1:] == ["waits"])
