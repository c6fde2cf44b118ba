# expect = "silent"
# twin = ["attention_read_too_early"]
"""The result of flash attention is read on another stream that waits for it."""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

given = [torch.randn(1, 2, 16, 16, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
torch.cuda.synchronize()
side = torch.cuda.Stream()
with torch.cuda.stream(side), sdpa_kernel(SDPBackend.FLASH_ATTENTION):
    made = scaled_dot_product_attention(*given)
torch.cuda.current_stream().wait_stream(side)
total = made.float()
torch.cuda.synchronize()
