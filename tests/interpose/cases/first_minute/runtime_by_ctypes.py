# expect = "silent"
# twin = ["runtime_of_its_own"]
"""The runtime that torch uses, called by ctypes: a copy and a wait for it."""

import ctypes

import torch

host, device = torch.zeros(8, pin_memory=True), torch.ones(8, device="cuda")
stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
runtime, pointer = ctypes.CDLL(None), ctypes.c_void_p
size, download = ctypes.c_size_t(32), 2
runtime.cudaMemcpyAsync(
    pointer(host.data_ptr()), pointer(device.data_ptr()), size, download, stream
)
torch.cuda.synchronize()
assert host.sum() == 8
