# expect = "silent"
# says = ["no conflict", "[7.0, 7.0] 448.0", "[9.0, 9.0] 576.0"]
"""A program that puts its own functions in the place of torch's factories, as DeepSpeed's
`zero.Init` does, gets the values that it would have without: racegate makes its tensors by torch's.
"""

import torch

kept = torch.empty, torch.zeros, torch.tensor, torch.arange


def halved(made):
    def make(*args, **kwargs):
        result = made(*args, **kwargs)
        return result.bfloat16() if result.is_floating_point() else result

    return make


source = torch.full((64,), 7, dtype=torch.bfloat16, device="cuda")
torch.empty, torch.zeros, torch.tensor, torch.arange = map(halved, kept)
first = source.float()
torch.empty, torch.zeros, torch.tensor, torch.arange = kept
print(first.cpu()[:2].tolist(), first.sum().item())
first.fill_(9)
print(first.cpu()[:2].tolist(), first.sum().item())
