# expect = "silent"
# twin = ["copy_thread_without_event"]
"""A thread copies blocks into a registered pool: it is given its work by a queue, and an event."""

import queue
import threading

import torch

blocks, pool = torch.zeros(4, 64, device="cuda"), torch.zeros(4, 64)
assert torch.cuda.cudart().cudaHostRegister(pool.data_ptr(), pool.nbytes, 0).value == 0
work: queue.Queue[torch.cuda.Event | None] = queue.Queue()
done: queue.Queue[torch.cuda.Event] = queue.Queue()


def copy() -> None:
    stream = torch.cuda.Stream()
    while (computed := work.get()) is not None:
        stream.wait_event(computed)
        with torch.cuda.stream(stream):
            pool.copy_(blocks, non_blocking=True)
            done.put(stream.record_event())


thread = threading.Thread(target=copy)
thread.start()
blocks.fill_(3.0)
work.put(torch.cuda.current_stream().record_event())
stored = done.get()
torch.cuda.current_stream().wait_event(stored)
blocks.fill_(4.0)
stored.synchronize()
assert float(pool.sum()) == 768.0
work.put(None)
thread.join()
