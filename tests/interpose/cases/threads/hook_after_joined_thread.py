# expect = "silent"
# twin = ["hook_after_thread"]
"""The thread is joined before `backward()` is called, whose hook reads what it wrote."""

import threading

import torch

host = torch.zeros(64, pin_memory=True)
weight = torch.ones(64, device="cuda", requires_grad=True)
torch.cuda.synchronize()
worker = threading.Thread(target=lambda: host.fill_(1.0), name="filler")
worker.start()
worker.join()
product = weight * 2
product.register_hook(lambda gradient: print(host.sum().item()))
product.sum().backward()
host.fill_(2.0)
