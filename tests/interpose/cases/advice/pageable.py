# expect = "conflict"
# says = ["only the implicit wait of a copy to pageable memory at pageable.py:11 orders them"]
# says_not = ["too late"]
"""The order that there is rests on a copy that waits because its memory is not pinned."""

import torch

host = torch.zeros(64, pin_memory=True)
host.copy_(torch.ones(64, device="cuda"), non_blocking=True)
total = float(host.sum())
other = torch.ones(64, device="cuda").cpu()
print(total, float(other.sum()))
