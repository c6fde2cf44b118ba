# expect = "silent"
# twin = ["allocator_backend"]
# says = ["expandable: True"]
"""A program that sets its allocator up by environment, before it imports torch."""

import os

os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"

import torch

x = torch.ones(3, device="cuda")
print("expandable:", torch.cuda.memory.memory_snapshot()[0]["is_expandable"])
