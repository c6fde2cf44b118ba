# expect = "silent"
# twin = ["final_item"]
"""Each download is waited for where it is read."""

import torch

host = torch.zeros(64, pin_memory=True)
loss = torch.zeros((), device="cuda")
total = 0.0
for _ in range(3):
    host.copy_(torch.ones(64, device="cuda"), non_blocking=True)
    torch.cuda.current_stream().record_event().synchronize()
    total += float(host.sum())
print(total, loss.item())
