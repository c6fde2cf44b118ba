# expect = "silent"
# says = ["no conflict"]
# twin = ["number_put_on_a_side_stream"]
"""As number_put_on_a_side_stream, behind the side stream."""

import torch

side = torch.cuda.Stream()
table = torch.zeros(64, device="cuda")
rows = torch.tensor([3, 5], device="cuda")
torch.cuda.synchronize()
with torch.cuda.stream(side):
    table[rows] = 1.0
torch.cuda.current_stream().wait_stream(side)
print(table[rows].tolist())
