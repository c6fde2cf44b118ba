# expect = "silent"
# twin = ["waits_for_each_other"]
# says = ["no conflict", "the last task was done"]
"""Executors that are alive at the end, in a module and in an object; locks in one order; a pause
that is longer than a program may stand still.
"""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import torch

host = torch.zeros(64, pin_memory=True)
host.copy_(torch.ones(64, device="cuda"), non_blocking=True)
torch.cuda.synchronize()
host.sum()
POOL = ThreadPoolExecutor(2)
first, second = threading.Lock(), threading.Lock()


class Loader:
    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="loader")

    def load(self) -> None:
        self.pool.submit(time.sleep, 6).add_done_callback(
            lambda done: print("the last task was done")
        )


def take(number: int) -> float:
    with first, second:
        return float(torch.full((3,), number, device="cuda").sum())


assert list(POOL.map(take, range(3))) == [0.0, 3.0, 6.0]
loader = Loader()
loader.load()
