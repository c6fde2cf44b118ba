# expect = "silent"
# says = ["no conflict"]
# twin = ["sparse_values_overwritten"]
"""The same product of a dense matrix, and a change behind it."""

import torch

side = torch.cuda.Stream()
matrix = torch.eye(4, device="cuda")
vector = torch.ones(4, 1, device="cuda")
torch.cuda.synchronize()
product = matrix @ vector
with torch.cuda.stream(side):
    side.wait_stream(torch.cuda.default_stream())
    matrix.fill_(2.0)
torch.cuda.synchronize()
print(product.flatten().tolist())
