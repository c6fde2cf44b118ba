# expect = "conflict"
# says = ["fill_ writes it on the default stream", "mul_ writes it on the default stream"]
"""A tensor that shrinks keeps its memory: nothing is handed out, and what races there is found."""

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
total.resize_(32).mul_(2.0)
worker.join()
