# expect = "conflict"
# says = ["on thread filler", "on the backward pass"]
"""A thread of autograd gets the number of one that has ended, and is another all the same."""

import threading
import time

import torch

host = torch.zeros(64, pin_memory=True)
weight = torch.ones(64, device="cuda", requires_grad=True)
torch.cuda.synchronize()
threading.Thread(target=lambda: host.fill_(1.0), name="filler").start()
time.sleep(0.5)
product = weight * 2
product.register_hook(lambda gradient: print(host.sum().item()))
product.sum().backward()
