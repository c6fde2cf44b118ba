# expect = "inconclusive"
# says = ["the program gave the device no work"]
"""A program that touches no CUDA is no proof of anything."""

import torch

print(torch.ones(3).sum().item())
