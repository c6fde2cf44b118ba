# expect = "conflict"
# says = ["1 conflict"]
"""Places that were uploaded without a wait are overwritten on the host."""

import torch

staged = torch.tensor([1, 2]).pin_memory()
table = torch.arange(8.0, device="cuda")
places = torch.zeros(2, dtype=torch.int64, device="cuda")
places.copy_(staged, non_blocking=True)
rows = table[places]
staged.fill_(3)
torch.cuda.synchronize()
print(rows.tolist())
