# expect = "silent"
# command = ["torch", "run", "--memory", "64M"]
# says = ["had no room"]
"""The context takes some of the device's memory for itself: two halves never fit."""

import torch

kept = torch.zeros(32 << 20, dtype=torch.uint8, device="cuda")
try:
    torch.zeros(32 << 20, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError:
    del kept
else:
    raise SystemExit("all of the memory was given away")
torch.cuda.empty_cache()
assert int(torch.ones(32 << 20, dtype=torch.uint8, device="cuda")[-1]) == 1
