"""A region reads its input on a side stream, and the program drops the input.

Run as `input_freed_early.py [waits]`: with waits the allocator is told of the side stream.
"""

import sys

import torch

import racegate


@torch.compile
def squared(x):
    return x * x + 1


def main(waits):
    side, current = torch.cuda.Stream(), torch.cuda.current_stream()
    x = torch.full((64,), 3.0, device="cuda")
    side.wait_stream(current)
    with torch.cuda.stream(side):
        y = squared(x)
    if waits:
        x.record_stream(side)
    del x
    z = torch.full((64,), 5.0, device="cuda")
    current.wait_stream(side)
    racegate.observe("sums", torch.stack([y.sum(), z.sum()]))


main(waits=sys.argv[1:] == ["waits"])
