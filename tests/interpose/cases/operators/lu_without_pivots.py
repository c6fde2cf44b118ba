# expect = "not modelled"
# says = ["linalg_lu", "not implemented on the CPU"]
"""CUDA factors without pivots, and a CPU does not: that is racegate's limit, not the program's."""

import torch

matrix = torch.eye(3, device="cuda") + 1
try:
    torch.linalg.lu_factor(matrix, pivot=False)
except RuntimeError:
    print("the program goes on")
