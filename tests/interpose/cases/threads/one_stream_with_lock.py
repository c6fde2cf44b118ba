# expect = "silent"
# twin = ["one_stream_by_chance"]
"""Two threads give one stream work on one tensor under one lock."""

import threading

import torch

total = torch.zeros(64, device="cuda")
lock = threading.Lock()


def add() -> None:
    for _ in range(20):
        with lock:
            total.add_(1.0)


workers = [threading.Thread(target=add) for _ in range(2)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
print(total.sum().item())
