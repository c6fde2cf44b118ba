"""A region adds to its input on a side stream and joins it: pytorch/pytorch#197416.

The compiler writes the sum back behind the join, so that nothing orders it before the reader.
"""

import torch

import racegate


def add_one(x, small):
    side = torch.Stream(device="cuda")
    with side:
        x.add_(1)
    torch.cuda.current_stream().wait_stream(side)
    return small + 1


x, small = torch.zeros(64, device="cuda"), torch.zeros(4, device="cuda")
torch.cuda.synchronize()
torch.compile(add_one)(x, small)
racegate.observe("x", x.sum())
