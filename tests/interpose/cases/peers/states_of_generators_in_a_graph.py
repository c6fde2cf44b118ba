# expect = "silent"
# says = ["no conflict"]
"""A graph draws from the states that its generators had when it was captured, as calls do that are
made one by one, and moves their offsets on.
"""

import torch


def states_of(generator):
    generator.manual_seed(0)
    return generator, generator.graphsafe_get_state(), generator.clone_state()


def draw(states):
    generator, old, new = states
    generator.graphsafe_set_state(new)
    drawn = [torch.rand(5, device="cuda", generator=generator)]
    generator.graphsafe_set_state(old)
    return drawn + [torch.rand(5, device="cuda", generator=generator) for _ in range(2)]


one_by_one = states_of(torch.Generator("cuda"))
default = states_of(torch.cuda.default_generators[0])
graph = torch.cuda.CUDAGraph()
for state in default[1:]:
    graph.register_generator_state(state)
with torch.cuda.graph(graph):
    replayed = draw(default)
for _ in range(3):
    drawn = draw(one_by_one)
    graph.replay()
    assert [s.get_offset() for s in one_by_one[1:]] == [s.get_offset() for s in default[1:]]
    for one, other in zip(drawn, replayed, strict=True):
        assert torch.equal(one, other), (one, other)
