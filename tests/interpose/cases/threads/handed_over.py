# expect = "silent"
# twin = ["handed_over_by_flag"]
"""What one thread fills another reads, behind each of the ways by which Python orders threads."""

import _thread
import asyncio
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait

import torch

there = torch.zeros(64, device="cuda")


def use(host: torch.Tensor) -> None:
    there.copy_(host, non_blocking=True)
    torch.cuda.synchronize()


def by(signal: Callable[[], object], seen: Callable[[], object]) -> None:
    host = torch.zeros(64, pin_memory=True)

    def fill() -> None:
        host.fill_(1.0)
        signal()

    threading.Thread(target=fill, daemon=True).start()
    while not seen():
        time.sleep(0.001)
    use(host)


items: queue.Queue[bool] = queue.Queue()
by(lambda: items.put(True), items.get)
simple: queue.SimpleQueue[bool] = queue.SimpleQueue()
by(lambda: simple.put(True), simple.get)
event = threading.Event()
by(event.set, event.is_set)
event = threading.Event()
by(event.set, event.wait)
semaphore = threading.Semaphore(0)
by(semaphore.release, semaphore.acquire)
barrier = threading.Barrier(2)
by(barrier.wait, lambda: barrier.wait() >= 0)
condition, done = threading.Condition(), []


def notify() -> None:
    with condition:
        done.append(True)
        condition.notify_all()


def noticed() -> bool:
    with condition:
        return condition.wait_for(lambda: done, timeout=5)


by(notify, noticed)
lock, flags = threading.RLock(), []


def put_up() -> None:
    with lock:
        flags.append(True)


def is_up() -> bool:
    with lock:
        return bool(flags)


by(put_up, is_up)

host = torch.zeros(64, pin_memory=True)
with ThreadPoolExecutor(2) as pool:
    pool.submit(host.fill_, 1.0).result()
    use(host)
    future = pool.submit(host.fill_, 2.0)
    while not future.done():
        time.sleep(0.001)
    use(host)
    wait([pool.submit(host.fill_, 3.0)])
    use(host)
    list(pool.map(host.fill_, [4.0]))
    use(host)
use(host)

worker = threading.Thread(target=host.fill_, args=(5.0,))
worker.start()
while worker.is_alive():
    time.sleep(0.001)
use(host)

lock_of_raw = threading.Lock()
lock_of_raw.acquire()


def raw() -> None:
    host.fill_(6.0)
    lock_of_raw.release()


_thread.start_new_thread(raw, ())
with lock_of_raw:
    use(host)


async def loop() -> None:
    await asyncio.to_thread(host.fill_, 7.0)
    use(host)
    loop, filled = asyncio.get_running_loop(), asyncio.Event()

    def fill() -> None:
        host.fill_(8.0)
        loop.call_soon_threadsafe(filled.set)

    threading.Thread(target=fill, daemon=True).start()
    await filled.wait()
    use(host)


asyncio.run(loop())
timer = threading.Timer(0.01, host.fill_, args=(9.0,))
timer.start()
timer.join()
use(host)
