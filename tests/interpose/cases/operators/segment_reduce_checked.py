# expect = "silent"
# says = ["no conflict"]
# twin = ["segment_reduce_unsafe"]
"""To check the lengths `segment_reduce` waits until they are there."""

import torch

staged = torch.tensor([1, 3]).pin_memory()
lengths = torch.zeros(2, dtype=torch.int64, device="cuda")
lengths.copy_(staged, non_blocking=True)
sums = torch.segment_reduce(torch.arange(4.0, device="cuda"), "sum", lengths=lengths)
staged.fill_(2)
torch.cuda.synchronize()
print(sums.tolist())
