# expect = "silent"
# command = ["torch", "run", "--explore"]
# twin = ["declared_kernel_not_waited"]
# says = ["racegate: no conflict"]
"""An operator of an engine's own, of which a few lines say what it copies: blocks by indices that a
kernel reads on the device.
"""

import torch

import racegate


def moves(source, target, blocks, size):
    for at, block in enumerate(blocks.tolist()):
        yield target.data_ptr() + at * size, source.data_ptr() + block * size, size


racegate.declare_copies(
    "engine::gather(Tensor source, Tensor(a!) target, Tensor blocks, int size) -> ()",
    moves,
    reads=("blocks",),
)
pool = torch.arange(32.0).reshape(8, 4).pin_memory()
blocks, there = torch.tensor([6, 1]), torch.zeros(2, 4, device="cuda")
side = torch.cuda.Stream()
wanted = blocks.to("cuda")
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    torch.ops.engine.gather(pool, there, wanted, 16)
torch.cuda.current_stream().wait_stream(side)
racegate.observe("gathered", there)
assert there.tolist() == [[24.0, 25.0, 26.0, 27.0], [4.0, 5.0, 6.0, 7.0]]
