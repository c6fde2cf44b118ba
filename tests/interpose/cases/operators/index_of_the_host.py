# expect = "silent"
# says = ["no conflict"]
# twin = ["index_before_its_upload"]
"""Places on the host are uploaded by the operator itself, which waits for them."""

import torch

staged = torch.tensor([1, 2]).pin_memory()
table = torch.arange(8.0, device="cuda")
places = torch.zeros(2, dtype=torch.int64, device="cuda")
rows = table[staged]
staged.fill_(3)
torch.cuda.synchronize()
print(rows.tolist())
