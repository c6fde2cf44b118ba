# expect = "conflict"
# says = ["on thread first", "on thread second"]
"""Two threads fill one pinned buffer, and nothing but time orders them."""

import threading
import time

import torch

host = torch.zeros(64, pin_memory=True)


def fill() -> None:
    host.fill_(1.0)


for name in ("first", "second"):
    threading.Thread(target=fill, name=name).start()
    time.sleep(0.2)
