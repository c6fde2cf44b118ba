# expect = "silent"
# command = ["torch", "run", "--explore"]
# twin = ["threads_are_not_benign"]
"""The thread is joined."""

import threading

import torch

from racegate.interpose import observe

host = torch.ones(64, pin_memory=True)
there = torch.zeros(64, device="cuda")
worker = threading.Thread(target=lambda: host.fill_(1.0))
worker.start()
worker.join()
there.copy_(host, non_blocking=True)
observe("there", there)
