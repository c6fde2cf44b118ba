# expect = "silent"
"""Pinned memory is the device's to use: that a program has it is work enough."""

import torch

print(torch.ones(3, pin_memory=True).sum().item())
