# expect = "conflict"
# says = ["1 conflict"]
"""A program that reads a download too early ends with `sys.exit(256)`."""

import sys

import torch

host = torch.zeros(64, pin_memory=True)
host.copy_(torch.ones(64, device="cuda"), non_blocking=True)
print(float(host.sum()))
sys.exit(256)
