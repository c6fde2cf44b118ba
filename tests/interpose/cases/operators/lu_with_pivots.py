# expect = "silent"
# twin = ["lu_without_pivots"]
"""The same with pivots."""

import torch

factors, _ = torch.linalg.lu_factor(torch.eye(3, device="cuda") + 1)
assert factors.shape == (3, 3)
