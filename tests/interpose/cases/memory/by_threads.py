# expect = "silent"
# says = ["all four threads came to their end"]
"""Threads take and give back memory at once."""

import sys
import threading

import torch

sys.setswitchinterval(1e-6)
ended = []


def work(number: int) -> None:
    for turn in range(20):
        taken = torch.ones(1000 + 300_000 * (turn % 3) + number, device="cuda")
        taken.mul_(2)
        pinned = torch.empty(100, pin_memory=True)
        del taken, pinned
        torch.cuda.empty_cache()
    ended.append(number)


threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert len(ended) == 4
print("all four threads came to their end")
