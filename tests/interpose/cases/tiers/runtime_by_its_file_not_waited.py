# expect = "conflict"
# says = ["d2h writes it on stream 1", "host read (sum)"]
"""The runtime that torch has loaded is called by ctypes, and nobody waits for its copy."""

import ctypes
from pathlib import Path

import torch

there = torch.full((64,), 3.0, device="cuda")
torch.cuda.synchronize()
maps = Path("/proc/self/maps").read_text().splitlines()
file = next(line.split(None, 5)[5] for line in maps if "libcudart" in line)
runtime = ctypes.CDLL(file)
pool = torch.zeros(64)
size, stream = ctypes.c_size_t(pool.nbytes), torch.cuda.Stream()
to, source = ctypes.c_void_p(pool.data_ptr()), ctypes.c_void_p(there.data_ptr())
assert runtime.cudaHostRegister(to, size, 0) == 0
assert runtime.cudaMemcpyAsync(to, source, size, 2, ctypes.c_void_p(stream.cuda_stream)) == 0
print(float(pool.sum()))
torch.cuda.synchronize()
