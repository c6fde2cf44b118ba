# expect = "silent"
# says = ["no conflict"]
"""The device's memory begins at the same address in each process, so that what a kernel did with
addresses out of a tensor is known in later ones too.
"""

import torch

first = torch.zeros(8, device="cuda")
assert first.data_ptr() == 1 << 45
