# expect = "conflict"
# says = ["host threads of the program"]
"""A list that another thread looks into orders nothing: that Python runs one thread at a time is
no promise of who comes first.
"""

import threading

import torch

host = torch.zeros(64, pin_memory=True)
there = torch.zeros(64, device="cuda")
torch.cuda.synchronize()
filled: list[bool] = []


def fill() -> None:
    host.fill_(1.0)
    filled.append(True)


threading.Thread(target=fill, daemon=True).start()
while not filled:
    pass
there.copy_(host, non_blocking=True)
torch.cuda.synchronize()
