# expect = "conflict"
# says = ["on thread filler", "host threads of the program"]
"""A thread fills a buffer, and nothing but time orders it; `backward()` is called in between."""

import threading

import torch

host = torch.zeros(64, pin_memory=True)
weight = torch.ones(64, device="cuda", requires_grad=True)
torch.cuda.synchronize()
filled: list[bool] = []


def fill() -> None:
    host.fill_(1.0)
    filled.append(True)


worker = threading.Thread(target=fill, name="filler")
worker.start()
while not filled:
    pass
weight.sum().backward()
weight.detach().copy_(host, non_blocking=True)
torch.cuda.synchronize()
worker.join()
