# expect = "silent"
# twin = ["pinned_by_both"]
"""Threads each pin memory of their own, which the allocator hands from one to the next."""

import threading
import time

import torch

addresses = set()
kept = torch.ones(64, device="cuda")
torch.cuda.synchronize()


def fill() -> None:
    for _ in range(5):
        host = torch.zeros(64, pin_memory=True)
        addresses.add(host.data_ptr())
        host.fill_(1.0)
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            there = host.to("cuda", non_blocking=True)
        side.synchronize()
        host.fill_(2.0)
        back = kept.to("cpu", non_blocking=True)
        torch.cuda.current_stream().synchronize()
        back.add_(1.0)
        del host, there, back


workers = [threading.Thread(target=fill) for _ in range(3)]
for worker in workers:
    worker.start()
    time.sleep(0.2)
    fill()
for worker in workers:
    worker.join()
print(len(addresses), "addresses")
