# expect = "silent"
# twin = ["exit_256", "exit_true"]
"""The download is waited for."""

import sys

import torch

host = torch.zeros(64, pin_memory=True)
host.copy_(torch.ones(64, device="cuda"), non_blocking=True)
torch.cuda.synchronize()
print(float(host.sum()))
sys.exit(256)
