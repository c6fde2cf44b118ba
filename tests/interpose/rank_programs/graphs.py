"""Collectives in captured graphs: each launch is one more of them."""

from __future__ import annotations

import torch
import torch.distributed as dist

from rank_programs.registry import Expected, program
from rank_programs.setting import begin, end, full


def _captured(
    x: torch.Tensor, *, is_async: bool = False
) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
    """A graph that adds one, sums over the ranks and doubles; and where its result is."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x + 1
        work = dist.all_reduce(y, async_op=is_async)
        if work is not None:
            work.wait()
        z = y * 2
    return graph, z


def _begun(rank: int) -> torch.Tensor:
    begin(rank)
    x = full(rank + 1)
    dist.all_reduce(full(0))
    torch.cuda.synchronize()
    return x


@program(Expected.SILENT)
def replayed(rank: int, ranks: int) -> None:
    x = _begun(rank)
    graph, z = _captured(x)
    for _ in range(3):
        graph.replay()
        x += 1
    assert z.tolist() == [18.0] * 4, z
    del graph
    end()


@program(Expected.SILENT)
def waited_for_inside(rank: int, ranks: int) -> None:
    x = _begun(rank)
    graph, z = _captured(x, is_async=True)
    graph.replay()
    assert z.tolist() == [10.0] * 4, z
    del graph
    end()


@program(Expected.CONFLICT)
def read_beside_a_replay(rank: int, ranks: int) -> None:
    x = _begun(rank)
    graph, z = _captured(x)
    side = torch.cuda.Stream()
    graph.replay()
    with torch.cuda.stream(side):
        z.sum()
    torch.cuda.synchronize()
    del graph
    end()


@program(Expected.DEADLOCK)
def one_replays_once_more(rank: int, ranks: int) -> None:
    x = _begun(rank)
    graph, _ = _captured(x)
    for _ in range(2 + (rank == 0)):
        graph.replay()
    torch.cuda.synchronize()
