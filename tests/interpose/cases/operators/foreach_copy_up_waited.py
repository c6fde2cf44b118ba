# expect = "silent"
# says = ["no conflict"]
# twin = ["foreach_copy_up"]
"""As foreach_copy_up, behind a wait."""

import torch

staged = [torch.ones(1024).pin_memory() for _ in range(2)]
weights = [torch.zeros(1024, device="cuda") for _ in range(2)]
torch._foreach_copy_(weights, staged, non_blocking=True)
torch.cuda.synchronize()
staged[0].fill_(5.0)
torch.cuda.synchronize()
print(float(weights[0].sum()))
