# expect = "silent"
# says = ["no conflict"]
# twin = ["foreach_copy_down"]
"""As foreach_copy_down, behind a wait."""

import torch

kept = [torch.zeros(1024).pin_memory() for _ in range(2)]
norms = [torch.full((1024,), 3.0, device="cuda") for _ in range(2)]
torch._foreach_copy_(kept, norms, non_blocking=True)
torch.cuda.synchronize()
print(float(kept[1].sum()))
