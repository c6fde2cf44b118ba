# expect = "silent"
# twin = ["host_function_not_waited"]
"""A host function reads what a copy before it on its stream brings, and writes what one behind it
takes; it puts a word into a queue, and the other stream waits for an event behind it.
"""

import ctypes
import queue

import torch
from shared.driver import DRIVER

there, host = torch.full((8,), 5.0, device="cuda"), torch.zeros(8, pin_memory=True)
stream, other = torch.cuda.Stream(), torch.cuda.Stream()
torch.cuda.synchronize()
sums: queue.Queue[float] = queue.Queue()


def doubled(_: int | None) -> None:
    sums.put(float(host.sum()))
    host.mul_(2.0)


body = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(doubled)
with torch.cuda.stream(stream):
    host.copy_(there, non_blocking=True)
    assert not DRIVER.cuLaunchHostFunc(ctypes.c_void_p(stream.cuda_stream), body, None)
    there.copy_(host, non_blocking=True)
other.wait_event(stream.record_event())
with torch.cuda.stream(other):
    there.add_(host.cuda(non_blocking=True))
torch.cuda.synchronize()
assert (sums.get(), float(there.sum()), float(host.sum())) == (40.0, 160.0, 80.0)
