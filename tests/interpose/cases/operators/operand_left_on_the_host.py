# expect = "fails"
# code = 7
# says = ["Expected all tensors to be on the same device"]
"""An operand was left on the host: an error, as with a GPU."""

import torch

scores = torch.zeros(4, device="cuda")
print((scores + torch.ones(4)).tolist())
