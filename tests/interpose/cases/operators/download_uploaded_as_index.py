# expect = "silent"
# says = ["no conflict"]
# twin = ["download_read_as_index"]
"""Places on their way down are uploaded again behind that, on the same stream."""

import torch

table = torch.arange(8.0, device="cuda")
places = torch.zeros(2, dtype=torch.int64).pin_memory()
places.copy_(torch.tensor([1, 2], device="cuda"), non_blocking=True)
print(table[places].tolist())
