# expect = "refused"
# command = ["torch", "run", "--gpu", "l4-25g"]
# says = ["--gpu l4-25g: no such GPU is known; these are: a100-40g,", "l4-24g"]
"""A GPU of which nobody knows the facts is not guessed at."""

import torch

torch.ones(3, device="cuda").sum().item()
