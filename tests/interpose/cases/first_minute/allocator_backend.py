# expect = "not modelled"
# says = ["backend:cudaMallocAsync, which the program sets by PYTORCH_ALLOC_CONF", "in <module>"]
"""An allocator of the driver's own, asked for by environment before torch is imported."""

import os

os.environ["PYTORCH_ALLOC_CONF"] = "backend: cudaMallocAsync"

import torch

torch.ones(3, device="cuda").sum().item()
