# expect = "silent"
"""Each replay of a graph draws new random numbers, and the same ones after the same seed."""

import torch

layer = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5)).cuda()
generator = torch.Generator("cuda").manual_seed(3)
source, noise = torch.ones(4, 8, device="cuda"), torch.zeros(8, device="cuda")
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    layer(source)
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
graph.register_generator_state(generator)
with torch.cuda.graph(graph):
    made = layer(source)
    noise.normal_(generator=generator)
    drawn = torch.rand(8, device="cuda")


def replayed() -> list[torch.Tensor]:
    graph.replay()
    torch.cuda.synchronize()
    return [one.detach().clone() for one in (made, noise, drawn)]


first, second = replayed(), replayed()
assert all(not torch.equal(one, other) for one, other in zip(first, second, strict=True))
runs = []
for _ in range(2):
    torch.cuda.manual_seed(7)
    generator.manual_seed(5)
    runs.append(replayed())
assert all(torch.equal(one, other) for one, other in zip(*runs, strict=True))
