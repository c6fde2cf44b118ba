# expect = "conflict"
# says = ["add_ writes it on stream 2", "free writes it on stream 1"]
"""Memory of a driver's pool is given back on one stream while another still uses it."""

import ctypes

import torch
from shared.driver import tensor_at

runtime = ctypes.CDLL(None)
first, second = torch.cuda.Stream(), torch.cuda.Stream()
address = ctypes.c_void_p()
queue = [ctypes.c_void_p(stream.cuda_stream) for stream in (first, second)]
assert not runtime.cudaMallocAsync(ctypes.byref(address), ctypes.c_size_t(256), queue[0])
memory = tensor_at(address.value or 0, 64)
with torch.cuda.stream(first):
    memory.fill_(1.0)
second.wait_stream(first)
with torch.cuda.stream(second):
    memory.add_(1.0)
assert not runtime.cudaFreeAsync(address, queue[0])
torch.cuda.synchronize()
