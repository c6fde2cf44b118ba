# expect = "silent"
# twin = ["racegate_fails_in_thread"]
"""Threads allocate, and give all memory back to the device."""

import threading

import torch


def work() -> None:
    for _ in range(60):
        some = torch.ones(3_000_000, device="cuda")
        more = some * 2
        del some, more
        torch.cuda.empty_cache()


workers = [threading.Thread(target=work) for _ in range(3)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
