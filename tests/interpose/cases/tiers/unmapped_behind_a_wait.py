# expect = "silent"
# twin = ["unmapped_under_a_kernel"]
"""Memory is taken out of its addresses when all that touches it is waited for, and mapped again."""

import torch
from shared.driver import map_memory, tensor_at, unmap_memory

address, handle = map_memory()
memory, side = tensor_at(address, 64), torch.cuda.Stream()
memory.fill_(1.0)
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    memory.mul_(2.0)
side.synchronize()
unmap_memory(address, handle)
assert float(memory.sum()) == 0.0, "what it held is lost"
