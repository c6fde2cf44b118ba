# expect = "silent"
# command = ["torch", "run", "--explore"]
# twin = ["any_source_still_written", "read_in_call_too_early", "source_overwritten"]
"""Batches whose sources are read in the order of the stream, in the call, or at any time from it
on, each where that is right: behind a kernel, from what is overwritten, from what nobody writes.
"""

import torch
from shared.driver import ANY, DURING_CALL, STREAM, copy_batch

import racegate

blocks, kept = torch.zeros(2, 64, device="cuda"), torch.zeros(2, 64, pin_memory=True)
side = torch.cuda.Stream()
blocks.fill_(7.0)
side.wait_stream(torch.cuda.current_stream())
copy_batch(list(zip(kept, blocks, strict=True)), side, STREAM)
side.synchronize()
racegate.observe("kept", kept)

copy_batch(list(zip(blocks, kept, strict=True)), side, ANY)
side.synchronize()
kept.add_(1.0)
copy_batch(list(zip(blocks, kept, strict=True)), side, DURING_CALL)
kept.zero_()
side.synchronize()
racegate.observe("blocks", blocks)
