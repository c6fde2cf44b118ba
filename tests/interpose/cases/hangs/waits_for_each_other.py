# expect = "not modelled"
# says = ["the program hangs", "in take", "in <module>", "CONFLICT 1", "1 conflict until then"]
"""Two threads take two locks, each in its own order, and the main one waits for both. What raced
before is told all the same.
"""

import threading

import torch

host = torch.zeros(64, pin_memory=True)
host.copy_(torch.ones(64, device="cuda"), non_blocking=True)
host.sum()
first, second = threading.Lock(), threading.Lock()
met = threading.Barrier(2)


def take(one: threading.Lock, other: threading.Lock) -> None:
    with one:
        met.wait()
        with other:
            pass


threads = [threading.Thread(target=take, args=pair) for pair in ((first, second), (second, first))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
