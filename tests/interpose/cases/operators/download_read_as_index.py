# expect = "conflict"
# says = ["1 conflict"]
"""Places on their way down are read by the host."""

import torch

table = torch.arange(8.0, device="cuda")
places = torch.zeros(2, dtype=torch.int64).pin_memory()
places.copy_(torch.tensor([1, 2], device="cuda"), non_blocking=True)
print(table[places[0].item()].item())
