# expect = "conflict"
# says = ["fill_ writes it on the default stream", "add_ "]
"""Two threads give one stream work on one tensor, and only chance says who is first."""

import threading

import torch

total = torch.zeros(64, device="cuda")
torch.cuda.synchronize()
filled: list[bool] = []


def fill() -> None:
    total.fill_(1.0)
    filled.append(True)


worker = threading.Thread(target=fill)
worker.start()
while not filled:
    pass
total.add_(1.0)
worker.join()
