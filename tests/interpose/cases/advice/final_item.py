# expect = "conflict"
# says = ["record an event after final_item.py:12", "only the implicit wait of item at"]
# says_not = ["too late"]
"""Nothing waits before a loss is read at the end: that one is not a wait to be moved."""

import torch

host = torch.zeros(64, pin_memory=True)
loss = torch.zeros((), device="cuda")
total = 0.0
for _ in range(3):
    host.copy_(torch.ones(64, device="cuda"), non_blocking=True)
    total += float(host.sum())
print(total, loss.item())
