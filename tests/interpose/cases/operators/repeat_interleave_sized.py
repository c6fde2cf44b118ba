# expect = "conflict"
# says = ["1 conflict"]
"""With the size of its result `repeat_interleave` does not wait for the upload of the repeats."""

import torch

staged = torch.tensor([1, 2, 3, 4]).pin_memory()
repeats = torch.zeros(4, dtype=torch.int64, device="cuda")
repeats.copy_(staged, non_blocking=True)
rows = torch.repeat_interleave(torch.arange(4, device="cuda"), repeats, output_size=10)
staged.fill_(1)
torch.cuda.synchronize()
print(rows.tolist())
