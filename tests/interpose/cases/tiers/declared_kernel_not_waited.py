# expect = "conflict"
# command = ["torch", "run", "--explore"]
# says = ["DIVERGENT", "h2d writes it on the default stream", "gather reads it on stream 1"]
"""An operator that copies blocks by indices does not wait for the upload of these."""

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
torch.cuda.synchronize()
wanted = blocks.pin_memory().to("cuda", non_blocking=True)
with torch.cuda.stream(side):
    torch.ops.engine.gather(pool, there, wanted, 16)
racegate.observe("gathered", there)
