# expect = "silent"
# twin = ["pageable"]
"""The copy to pageable memory comes first, and the read rests on its wait."""

import torch

host = torch.zeros(64, pin_memory=True)
host.copy_(torch.ones(64, device="cuda"), non_blocking=True)
other = torch.ones(64, device="cuda").cpu()
total = float(host.sum())
print(total, float(other.sum()))
