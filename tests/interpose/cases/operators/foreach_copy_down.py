# expect = "conflict"
# says = ["1 conflict"]
"""A member of a list is read before the list's download was waited for."""

import torch

kept = [torch.zeros(1024).pin_memory() for _ in range(2)]
norms = [torch.full((1024,), 3.0, device="cuda") for _ in range(2)]
torch._foreach_copy_(kept, norms, non_blocking=True)
print(float(kept[1].sum()))
