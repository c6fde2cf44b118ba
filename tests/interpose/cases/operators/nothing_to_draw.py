# expect = "silent"
# says = ["no conflict"]
"""Where there are no elements a generator stays where it is: a GPU launches no kernel for them."""

import torch

generator = torch.Generator("cuda").manual_seed(5)
before = generator.get_offset()
torch.rand(4, device="cuda")[2:2].uniform_(generator=generator)
torch.rand(0, device="cuda", generator=generator)
torch.empty(0, 3, device="cuda").exponential_(generator=generator)
assert generator.get_offset() == before
torch.empty(1, device="cuda").uniform_(generator=generator)
assert generator.get_offset() > before
default = torch.cuda.default_generators[0].get_offset()
torch.rand(0, device="cuda")
assert torch.cuda.default_generators[0].get_offset() == default
