"""A region uploads what it made on the host, without waiting, and multiplies on the host.

As Python, the source is pageable memory, which is read before the copy returns. The compiler puts
it into pinned memory, and lets the product overwrite that while it may be read.
"""

import torch

import racegate


def upload(given, square):
    there = (given * 2).to("cuda", non_blocking=True)
    return there + 1, torch.cumsum(square @ square, 0)


given, square = torch.ones(64), torch.ones(8, 8)
there, product = torch.compile(upload)(given, square)
racegate.observe("there", there.sum())
