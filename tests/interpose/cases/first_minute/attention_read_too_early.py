# expect = "conflict"
# says = ["1 conflict"]
"""The result of flash attention is read on another stream that waits for nothing."""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

given = [torch.randn(1, 2, 16, 16, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
torch.cuda.synchronize()
side = torch.cuda.Stream()
with torch.cuda.stream(side), sdpa_kernel(SDPBackend.FLASH_ATTENTION):
    made = scaled_dot_product_attention(*given)
total = made.float()
torch.cuda.synchronize()
