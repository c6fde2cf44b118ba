"""A region is replayed as a graph, and a side stream still reads what the replay before has left.

Run as `graph_output_read_late.py [waits]`: with waits the next replay comes behind the reader.
"""

import sys

import torch

import racegate


@torch.compile(mode="reduce-overhead")
def doubled(x):
    return x * 2


def main(waits):
    side, current = torch.cuda.Stream(), torch.cuda.current_stream()
    inputs = [torch.full((64,), float(number), device="cuda") for number in range(4)]
    for one in inputs:  # warmed up and captured
        doubled(one)
    sums = torch.zeros(4, device="cuda")
    torch.cuda.synchronize()
    for number, one in enumerate(inputs):
        torch.compiler.cudagraph_mark_step_begin()
        result = doubled(one)
        side.wait_stream(current)
        with torch.cuda.stream(side):
            torch.sum(result, 0, out=sums[number])
        if waits:
            current.wait_stream(side)
    torch.cuda.synchronize()
    racegate.observe("sums", sums)


main(waits=sys.argv[1:] == ["waits"])
