# expect = "silent"
# twin = ["side_wait_by_other_thread"]
"""The thread that makes the default stream wait is joined before the tensor is used there."""

import threading

import torch

side = torch.cuda.Stream()
host = torch.ones(64, pin_memory=True)
held = torch.zeros(64, device="cuda")
torch.cuda.synchronize()
with torch.cuda.stream(side):
    held.copy_(host, non_blocking=True)
worker = threading.Thread(target=lambda: torch.cuda.current_stream().wait_stream(side))
worker.start()
worker.join()
print(held.sum().item())
