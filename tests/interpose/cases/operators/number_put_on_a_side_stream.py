# expect = "conflict"
# says = ["1 conflict"]
"""A number is uploaded before rows are set on a side stream: its wait is no wait for the rows."""

import torch

side = torch.cuda.Stream()
table = torch.zeros(64, device="cuda")
rows = torch.tensor([3, 5], device="cuda")
torch.cuda.synchronize()
with torch.cuda.stream(side):
    table[rows] = 1.0
print(table[rows].tolist())
