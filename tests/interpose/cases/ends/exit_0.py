# expect = "silent"
# says = ["no conflict"]
# twin = ["exit_3"]
"""As exit_3, without one."""

import torch

print(float(torch.ones(64, device="cuda").sum()))
