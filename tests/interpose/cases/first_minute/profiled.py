# expect = "silent"
"""The profiler with CUDA activity profiles the host alone, and nothing ends."""

import torch
from torch.profiler import ProfilerActivity, profile

with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
    total = torch.ones(4, device="cuda").sum().item()
assert total == 4
assert len(profiled.key_averages())
