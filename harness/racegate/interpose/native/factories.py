"""Torch's functions that make tensors, as they are before the program begins. A program may put
others in their place (DeepSpeed's `zero.Init` changes dtypes and devices), and what racegate makes
for itself is not the program's.
"""

import torch

arange = torch.arange
empty = torch.empty
empty_like = torch.empty_like
empty_strided = torch.empty_strided
from_numpy = torch.from_numpy
frombuffer = torch.frombuffer
tensor = torch.tensor
zeros = torch.zeros
zeros_like = torch.zeros_like
