# expect = "conflict"
# says = ["1 conflict"]
"""A member of a list is filled again while the list's upload may be on its way."""

import torch

staged = [torch.ones(1024).pin_memory() for _ in range(2)]
weights = [torch.zeros(1024, device="cuda") for _ in range(2)]
torch._foreach_copy_(weights, staged, non_blocking=True)
staged[0].fill_(5.0)
torch.cuda.synchronize()
print(float(weights[0].sum()))
