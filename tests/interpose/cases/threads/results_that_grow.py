# expect = "silent"
"""Threads use the same memory one after the other, which torch's own code takes from the allocator:
for results that begin without elements, outputs and tensors that grow, and a storage that is
resized. That one thread waits for the other's turn is no edge: only the allocator orders them.
"""

import threading
import time

import torch

turn = [0]
given = torch.arange(1000.0, device="cuda") - 500
torch.cuda.synchronize()


def made() -> list[torch.Tensor]:
    angles = given.abs()
    ends = torch.arange(3, 900, device="cuda")
    outputs = torch.empty(0, device="cuda")
    torch.mul(given, 2, out=outputs)
    grown = torch.empty(0, device="cuda").resize_(700).fill_(1.0)
    emptied = torch.ones(600, device="cuda")
    emptied.untyped_storage().resize_(0)
    taken = torch.ones(600, device="cuda")
    emptied.untyped_storage().resize_(2400)
    return [angles, ends, outputs, grown, taken, emptied.fill_(2.0)]


def work(number: int) -> None:
    for place in range(number, 8, 2):
        while turn[0] != place:
            time.sleep(0)
        made()
        turn[0] += 1


workers = [threading.Thread(target=work, args=(number,)) for number in range(2)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
