# expect = "conflict"
# says = ["1 conflict"]
"""`nonzero` waits for the number of places, and writes them after that: another stream does not."""

import torch

side = torch.cuda.Stream()
flags = torch.tensor([0.0, 1.0, 1.0], device="cuda")
torch.cuda.synchronize()
with torch.cuda.stream(side):
    places = flags.nonzero()
print((places + 1).tolist())
