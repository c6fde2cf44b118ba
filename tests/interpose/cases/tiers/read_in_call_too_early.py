# expect = "conflict"
# command = ["torch", "run", "--explore"]
# says = ["DIVERGENT", "source of d2d reads it on the host"]
"""The source of a batch is read before the call returns, and the kernel before it still writes."""

import torch
from shared.driver import DURING_CALL, copy_batch

import racegate

block, other = torch.zeros(64, device="cuda"), torch.zeros(64, device="cuda")
stream = torch.cuda.Stream()
torch.cuda.synchronize()
with torch.cuda.stream(stream):
    block.fill_(7.0)
copy_batch([(other, block)], stream, DURING_CALL)
stream.synchronize()
racegate.observe("other", other)
