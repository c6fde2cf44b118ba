# expect = "conflict"
# says = ["on stream 1", "thread"]
"""A thread makes the default stream wait for an upload; another uses it there without an order."""

import threading

import torch

side = torch.cuda.Stream()
host = torch.ones(64, pin_memory=True)
held = torch.zeros(64, device="cuda")
torch.cuda.synchronize()
waits: list[bool] = []
with torch.cuda.stream(side):
    held.copy_(host, non_blocking=True)


def wait() -> None:
    torch.cuda.current_stream().wait_stream(side)
    waits.append(True)


worker = threading.Thread(target=wait)
worker.start()
while not waits:
    pass
print(held.sum().item())
worker.join()
