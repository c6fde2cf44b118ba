# expect = "silent"
"""Threads each use memory of the device that the allocator hands from one to the next."""

import threading
import time

import torch


def work() -> None:
    for _ in range(10):
        some = torch.ones(1000, device="cuda")
        more = some * 2 + 1
        more.add_(some)
        del some, more


workers = [threading.Thread(target=work) for _ in range(4)]
for worker in workers:
    worker.start()
    time.sleep(0.05)
    work()
for worker in workers:
    worker.join()
