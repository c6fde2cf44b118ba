"""A region reads a buffer on a side stream, and says so with record_stream.

As Python, its memory is handed out again when the side stream has read it. The compiler gives it
to the next product on the default stream by itself.
"""

import torch

import racegate

side = torch.cuda.Stream()


def products(x, w):
    current = torch.cuda.current_stream()
    first = x @ w
    side.wait_stream(current)
    with torch.cuda.stream(side):
        second = first @ w
        first.record_stream(side)
    third = w @ w
    fourth = third @ w
    current.wait_stream(side)
    return second, fourth


x, w = torch.full((8, 8), 2.0, device="cuda"), torch.ones(8, 8, device="cuda")
torch.cuda.synchronize()
second, fourth = torch.compile(products)(x, w)
racegate.observe("second", second.sum())
