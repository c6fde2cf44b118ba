# expect = "silent"
"""The allocator maps memory into reserved addresses, takes it out and maps it again."""

import torch

torch.cuda.memory._set_allocator_settings("expandable_segments:True")
for size in (1 << 20, 8 << 20, 3 << 20):
    made = torch.full((size,), 2.0, device="cuda")
    assert made.sum() == 2.0 * size
    del made
    torch.cuda.empty_cache()
kinds = {segment["is_expandable"] for segment in torch.cuda.memory_snapshot()}
made = torch.ones(1 << 20, device="cuda")
kinds |= {segment["is_expandable"] for segment in torch.cuda.memory_snapshot()}
assert kinds == {True}, kinds
