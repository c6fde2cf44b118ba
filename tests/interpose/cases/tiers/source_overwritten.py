# expect = "conflict"
# command = ["torch", "run", "--explore"]
# says = ["DIVERGENT", "h2d reads it on stream 1", "host write (zero_)"]
"""The source of a batch is read in the order of the stream, and overwritten behind the call."""

import torch
from shared.driver import STREAM, copy_batch

import racegate

block, kept = torch.zeros(64, device="cuda"), torch.ones(64, pin_memory=True)
side = torch.cuda.Stream()
torch.cuda.synchronize()
copy_batch([(block, kept)], side, STREAM)
kept.zero_()
side.synchronize()
racegate.observe("block", block)
