# expect = "not modelled"
# says = ["not modelled"]
"""The values of a sparse matrix change beside its product, which the device does not compute."""

import torch

side = torch.cuda.Stream()
matrix = torch.eye(4, device="cuda").to_sparse_csr()
vector = torch.ones(4, 1, device="cuda")
torch.cuda.synchronize()
product = matrix @ vector
with torch.cuda.stream(side):
    matrix.values().fill_(2.0)
torch.cuda.synchronize()
print(product.flatten().tolist())
