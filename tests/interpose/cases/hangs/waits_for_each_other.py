# expect = "not modelled"
# says = ["the program hangs", "in take", "in <module>"]
"""Two threads take two locks, each in its own order, and the main one waits for both."""

import threading

import torch

torch.ones(3, device="cuda").sum().item()
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
