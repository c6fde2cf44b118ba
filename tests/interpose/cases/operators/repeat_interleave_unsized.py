# expect = "silent"
# says = ["no conflict"]
# twin = ["repeat_interleave_sized"]
"""Without a size `repeat_interleave` waits until the repeats are there."""

import torch

staged = torch.tensor([1, 2, 3, 4]).pin_memory()
repeats = torch.zeros(4, dtype=torch.int64, device="cuda")
repeats.copy_(staged, non_blocking=True)
rows = torch.repeat_interleave(torch.arange(4, device="cuda"), repeats)
staged.fill_(1)
torch.cuda.synchronize()
print(rows.tolist())
