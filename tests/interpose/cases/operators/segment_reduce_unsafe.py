# expect = "conflict"
# says = ["1 conflict"]
"""Without its checks `segment_reduce` does not wait for the upload of the lengths."""

import torch

staged = torch.tensor([1, 3]).pin_memory()
lengths = torch.zeros(2, dtype=torch.int64, device="cuda")
lengths.copy_(staged, non_blocking=True)
sums = torch.segment_reduce(torch.arange(4.0, device="cuda"), "sum", lengths=lengths, unsafe=True)
staged.fill_(2)
torch.cuda.synchronize()
print(sums.tolist())
