# expect = "conflict"
# says = ["mul_ writes it on stream 1", "unmap writes it on the host"]
"""Memory is taken out of its addresses while a kernel on another stream may still touch it."""

import torch
from shared.driver import map_memory, tensor_at, unmap_memory

address, handle = map_memory()
memory, side = tensor_at(address, 64), torch.cuda.Stream()
memory.fill_(1.0)
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    memory.mul_(2.0)
torch.cuda.current_stream().synchronize()
unmap_memory(address, handle)
