# expect = "fails"
# code = 7
# command = ["torch", "run", "--memory", "64M"]
# says = ["CUDA out of memory", "allocations that the virtual device had no room for"]
"""More than there is: torch's own error, and the verdict says whose limit it was."""

import torch

torch.zeros(65 << 20, dtype=torch.uint8, device="cuda")
