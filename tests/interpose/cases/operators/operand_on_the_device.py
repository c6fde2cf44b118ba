# expect = "silent"
# says = ["no conflict"]
# twin = ["operand_left_on_the_host"]
"""As operand_left_on_the_host, with the operand on the device."""

import torch

scores = torch.zeros(4, device="cuda")
print((scores + torch.ones(4).to("cuda")).tolist())
