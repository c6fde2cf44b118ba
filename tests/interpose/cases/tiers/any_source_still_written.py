# expect = "conflict"
# command = ["torch", "run", "--explore"]
# says = ["DIVERGENT", "source of d2h reads it", "fill_ writes it on the default stream"]
"""A batch may read its source at any time, and a kernel before it on the stream still writes it.

The wait for the stream orders the copy behind the kernel; it does not order what the copy reads.
"""

import torch
from shared.driver import ANY, copy_batch

import racegate

block, kept = torch.zeros(64, device="cuda"), torch.zeros(64, pin_memory=True)
side = torch.cuda.Stream()
block.fill_(7.0)
side.wait_stream(torch.cuda.current_stream())
copy_batch([(kept, block)], side, ANY)
side.synchronize()
racegate.observe("kept", kept)
