# expect = "silent"
# says = ["no conflict"]
# twin = ["nonzero_on_a_side_stream"]
"""As nonzero_on_a_side_stream, behind the side stream."""

import torch

side = torch.cuda.Stream()
flags = torch.tensor([0.0, 1.0, 1.0], device="cuda")
torch.cuda.synchronize()
with torch.cuda.stream(side):
    places = flags.nonzero()
torch.cuda.current_stream().wait_stream(side)
print((places + 1).tolist())
