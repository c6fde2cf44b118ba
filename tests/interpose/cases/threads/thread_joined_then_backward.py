# expect = "silent"
# twin = ["thread_then_backward"]
"""The thread is joined before what it filled is uploaded."""

import threading

import torch

host = torch.zeros(64, pin_memory=True)
weight = torch.ones(64, device="cuda", requires_grad=True)
torch.cuda.synchronize()


def fill() -> None:
    host.fill_(1.0)


worker = threading.Thread(target=fill, name="filler")
worker.start()
weight.sum().backward()
worker.join()
weight.detach().copy_(host, non_blocking=True)
torch.cuda.synchronize()
