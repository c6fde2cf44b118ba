# expect = "silent"
# says = ["no conflict"]
"""Fused optimizers step in a captured graph as they do outside of one."""

import torch
from torch import optim

KINDS = [
    lambda p: optim.SGD(p, lr=0.1, momentum=0.5, fused=True),
    lambda p: optim.Adagrad(p, lr=0.1, fused=True),
    lambda p: optim.Adam(p, lr=torch.tensor(0.1, device="cuda"), capturable=True, fused=True),
    lambda p: optim.AdamW(p, lr=0.1, capturable=True, fused=True),
]


def stepped(make, is_captured):
    weight = torch.full((4, 4), 0.5, device="cuda", requires_grad=True)
    weight.grad = torch.arange(16.0, device="cuda").reshape(4, 4)
    optimizer = make([weight])
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        optimizer.step()
    torch.cuda.current_stream().wait_stream(side)
    if is_captured:
        with torch.cuda.graph(graph):
            optimizer.step()
    for _ in range(3):
        graph.replay() if is_captured else optimizer.step()
    torch.cuda.synchronize()
    return weight.detach().cpu()


for make in KINDS:
    replayed, plain = stepped(make, True), stepped(make, False)
    assert torch.equal(replayed, plain), (replayed, plain)
