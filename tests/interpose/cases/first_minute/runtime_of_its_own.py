# expect = "not modelled"
# says = ["cuGetExportTable (for a CUDA runtime of its own), which"]
"""cuda.bindings brings a CUDA runtime of its own: its copies would be lost."""

import torch
from cuda.bindings import runtime

host, device = torch.zeros(8, pin_memory=True), torch.ones(8, device="cuda")
kind = runtime.cudaMemcpyKind.cudaMemcpyDeviceToHost
stream = torch.cuda.current_stream().cuda_stream
runtime.cudaMemcpyAsync(host.data_ptr(), device.data_ptr(), 32, kind, stream)
torch.cuda.synchronize()
