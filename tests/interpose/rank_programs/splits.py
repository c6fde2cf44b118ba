"""Groups that are made, split and ended."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from rank_programs.registry import Expected, program
from rank_programs.setting import begin, end, full


@program(Expected.SILENT)
def begun_eagerly(rank: int, ranks: int) -> None:
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    half = dist.new_group([0, 1])
    x = full(rank + 1)
    dist.all_reduce(x, group=half)
    assert x[0].item() == 3.0
    end()


@program(Expected.SILENT, ranks=4)
def a_mesh(rank: int, ranks: int) -> None:
    begin(rank)
    mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("outer", "inner"))
    x = full(rank)
    dist.all_reduce(x, group=mesh["inner"].get_group())
    dist.all_reduce(x, group=mesh["outer"].get_group())
    assert x[0].item() == 6.0
    end()


@program(Expected.SILENT)
def split_of_the_group(rank: int, ranks: int) -> None:
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    alone = dist.split_group(split_ranks=[[0], [1]])
    x = full(rank + 1)
    dist.all_reduce(x, group=alone)
    assert x[0].item() == rank + 1
    end()


@program(Expected.DEADLOCK)
def split_to_which_one_does_not_come(rank: int, ranks: int) -> None:
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    if rank == 0:
        dist.split_group(split_ranks=[[0], [1]])


@program(Expected.DEADLOCK)
def ended_while_one_waits(rank: int, ranks: int) -> None:
    begin(rank)
    x = full(rank)
    dist.all_reduce(x)
    if rank == 0:
        dist.all_reduce(x)
    end()


@program(Expected.SILENT)
def ended_with_work_in_flight(rank: int, ranks: int) -> None:
    begin(rank)
    works = [dist.all_reduce(full(rank), async_op=True) for _ in range(3)]
    dist.destroy_process_group()
    del works


@program(Expected.SILENT)
def gloo_beside_it(rank: int, ranks: int) -> None:
    begin(rank)
    hosts = dist.new_group(backend="gloo")
    x, y = full(rank + 1), torch.full((4,), float(rank + 1))
    dist.all_reduce(x)
    dist.all_reduce(y, group=hosts)
    assert x[0].item() == y[0].item() == 3.0
    end()
