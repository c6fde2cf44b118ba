# expect = "silent"
# twin = ["shrunk_in_place"]
"""The same, when the other thread has ended."""

import threading

import torch

total = torch.zeros(64, device="cuda")
torch.cuda.synchronize()


def fill() -> None:
    total.fill_(1.0)


worker = threading.Thread(target=fill)
worker.start()
worker.join()
total.resize_(32).mul_(2.0)
