"""Collectives that ranks do not agree on, and communicators that they use in other orders."""

from __future__ import annotations

import torch
import torch.distributed as dist

from rank_programs.registry import Expected, program
from rank_programs.setting import begin, end, full


@program(Expected.DEADLOCK)
def one_skips_the_last(rank: int, ranks: int) -> None:
    begin(rank)
    x = full(rank + 1)
    dist.all_reduce(x)
    if rank == 0:
        dist.all_reduce(x)
        x.sum().item()


@program(Expected.MISMATCH)
def one_skips_the_last_and_nobody_waits(rank: int, ranks: int) -> None:
    begin(rank)
    x = full(rank + 1)
    dist.all_reduce(x)
    if rank == 0:
        dist.all_reduce(x)


@program(Expected.MISMATCH)
def one_skips_and_another_kind_follows(rank: int, ranks: int) -> None:
    begin(rank)
    x = full(rank + 1)
    if rank == 0:
        dist.all_reduce(x)
    dist.broadcast(x, 0)
    x.sum().item()


@program(Expected.MISMATCH)
def other_kinds(rank: int, ranks: int) -> None:
    begin(rank)
    x = full(rank + 1)
    dist.all_reduce(x)
    if rank == 0:
        dist.all_reduce(x)
    else:
        dist.broadcast(x, 0)
    torch.cuda.synchronize()


@program(Expected.MISMATCH)
def other_sizes(rank: int, ranks: int) -> None:
    begin(rank)
    dist.all_reduce(full(1, size=4 + rank))
    torch.cuda.synchronize()


@program(Expected.MISMATCH)
def other_types(rank: int, ranks: int) -> None:
    begin(rank)
    x = full(1)
    dist.all_reduce(x.half() if rank else x.to(torch.int64))
    torch.cuda.synchronize()


@program(Expected.MISMATCH)
def other_reductions(rank: int, ranks: int) -> None:
    begin(rank)
    dist.all_reduce(full(1), op=dist.ReduceOp.MAX if rank else dist.ReduceOp.SUM)
    torch.cuda.synchronize()


@program(Expected.MISMATCH)
def other_roots(rank: int, ranks: int) -> None:
    begin(rank)
    dist.broadcast(full(rank), rank)
    torch.cuda.synchronize()


@program(Expected.MISMATCH, ranks=3)
def the_third_disagrees(rank: int, ranks: int) -> None:
    begin(rank)
    dist.all_reduce(full(1, size=8 if rank == 2 else 4))
    torch.cuda.synchronize()


@program(Expected.DEADLOCK)
def one_raises(rank: int, ranks: int) -> None:
    begin(rank)
    x = full(rank + 1)
    dist.all_reduce(x)
    x.sum().item()
    if rank == 1:
        raise ValueError("this rank alone")
    dist.all_reduce(x)
    x.sum().item()


@program(Expected.DEADLOCK)
def one_leaves_early(rank: int, ranks: int) -> None:
    begin(rank)
    x = full(rank + 1)
    for step in range(3):
        if rank == 1 and step == 2:
            return
        dist.all_reduce(x)
        x.sum().item()


@program(Expected.FAILS)
def both_raise(rank: int, ranks: int) -> None:
    begin(rank)
    x = full(rank + 1)
    dist.all_reduce(x)
    x.sum().item()
    raise ValueError("all ranks")


def _two_groups() -> list[dist.ProcessGroup]:
    """Of all ranks, with communicators that are made already."""
    groups = [dist.new_group([0, 1]), dist.new_group([0, 1])]
    for group in groups:
        dist.all_reduce(full(0), group=group)
    return groups


@program(Expected.DEADLOCK)
def two_groups_in_opposite_orders(rank: int, ranks: int) -> None:
    begin(rank)
    groups = _two_groups()
    x = full(rank + 1)
    for group in groups if rank == 0 else groups[::-1]:
        dist.all_reduce(x, group=group)
    torch.cuda.synchronize()


@program(Expected.DEADLOCK)
def two_groups_in_opposite_orders_and_nobody_waits(rank: int, ranks: int) -> None:
    begin(rank)
    groups = _two_groups()
    x = full(rank + 1)
    for group in groups if rank == 0 else groups[::-1]:
        dist.all_reduce(x, group=group)


@program(Expected.ORDER)
def two_groups_in_opposite_orders_without_edges(rank: int, ranks: int) -> None:
    begin(rank)
    groups = _two_groups()
    parts = [full(rank), full(rank)]
    works = []
    for at in (0, 1) if rank == 0 else (1, 0):
        works.append(dist.all_reduce(parts[at], group=groups[at], async_op=True))
    for work in works:
        work.wait()
    end()


@program(Expected.DEADLOCK)
def two_groups_made_in_opposite_orders(rank: int, ranks: int) -> None:
    """Hosts wait for each other where the first collective makes a communicator."""
    begin(rank)
    groups = [dist.new_group([0, 1]), dist.new_group([0, 1])]
    parts = [full(rank), full(rank)]
    works = []
    for at in (0, 1) if rank == 0 else (1, 0):
        works.append(dist.all_reduce(parts[at], group=groups[at], async_op=True))
    for work in works:
        work.wait()
    end()


@program(Expected.SILENT)
def two_groups_in_one_order(rank: int, ranks: int) -> None:
    begin(rank)
    groups = [dist.new_group([0, 1]), dist.new_group([0, 1])]
    parts = [full(rank), full(rank)]
    works = [
        dist.all_reduce(part, group=group, async_op=True)
        for part, group in zip(parts, groups, strict=True)
    ]
    for work in works:
        work.wait()
    assert parts[0].tolist() == parts[1].tolist() == [1.0] * 4
    end()


@program(Expected.SILENT, ranks=4)
def rows_and_columns(rank: int, ranks: int) -> None:
    begin(rank)
    rows = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    columns = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    x = full(rank)
    dist.all_reduce(x, group=rows[rank // 2])
    dist.all_reduce(x, group=columns[rank % 2])
    assert x.tolist() == [6.0] * 4
    end()


@program(Expected.DEADLOCK, ranks=4)
def a_circle_of_groups(rank: int, ranks: int) -> None:
    """Each pair of neighbours has a group, and each rank begins with the one to its right."""
    begin(rank)
    groups = [dist.new_group(sorted((at, (at + 1) % ranks))) for at in range(ranks)]
    x = full(rank)
    dist.all_reduce(x, group=groups[rank])
    dist.all_reduce(x, group=groups[rank - 1])
    torch.cuda.synchronize()


@program(Expected.SILENT)
def every_kind(rank: int, ranks: int) -> None:
    begin(rank)
    x = full(rank + 1)
    parts = [torch.empty_like(x) for _ in range(ranks)]
    dist.all_gather(parts, x)
    assert [part[0].item() for part in parts] == [1.0, 2.0]
    dist.broadcast(x, 1)
    assert x[0].item() == 2.0
    half = full(0, size=2)
    dist.reduce_scatter(half, [full(rank, size=2), full(rank + 1, size=2)])
    assert half[0].item() == (1.0 if rank == 0 else 3.0)
    out = torch.empty_like(x)
    dist.all_to_all_single(out, full(rank))
    assert out.tolist() == [0.0, 0.0, 1.0, 1.0]
    y = full(rank + 1)
    dist.reduce(y, 0)
    assert y[0].item() == (3.0 if rank == 0 else 2.0)
    dist.barrier()
    end()


@program(Expected.SILENT)
def reductions(rank: int, ranks: int) -> None:
    begin(rank)
    ops = dist.ReduceOp
    for op, wanted in (
        (ops.SUM, 5.0),
        (ops.PRODUCT, 6.0),
        (ops.MAX, 3.0),
        (ops.MIN, 2.0),
        (ops.AVG, 2.5),
    ):
        for dtype in (torch.float32, torch.bfloat16):
            x = torch.full((4,), float(rank + 2), device="cuda", dtype=dtype)
            dist.all_reduce(x, op=op)
            assert x.tolist() == [wanted] * 4
    end()


@program(Expected.SILENT)
def objects(rank: int, ranks: int) -> None:
    begin(rank)
    found: list[object] = [None] * ranks
    dist.all_gather_object(found, {"rank": rank, "words": "x" * (10 + rank)})
    assert [one["rank"] for one in found] == [0, 1]  # type: ignore[index]
    end()


@program(Expected.SILENT)
def a_group_of_one(rank: int, ranks: int) -> None:
    begin(rank)
    groups = [dist.new_group([0]), dist.new_group([1])]
    x = full(rank + 1)
    dist.all_reduce(x, group=groups[rank])
    assert x[0].item() == rank + 1
    end()


@program(Expected.SILENT)
def work_of_a_group_that_only_some_have(rank: int, ranks: int) -> None:
    begin(rank)
    alone = dist.new_group([1])
    x = full(rank + 1)
    if rank == 1:
        dist.all_reduce(x, group=alone)
    dist.all_reduce(x)
    assert x[0].item() == 3.0
    end()


@program(Expected.DEADLOCK)
def one_skips_the_first(rank: int, ranks: int) -> None:
    """Rank 1 waits in torch's store for the communicator that rank 0 never makes."""
    begin(rank)
    x = full(rank)
    if rank == 1:
        dist.all_reduce(x)
    x.sum().item()


@program(Expected.DEADLOCK)
def one_skips_one_of_gloo(rank: int, ranks: int) -> None:
    torch.cuda.set_device(rank)
    dist.init_process_group("gloo")
    x = torch.ones(4)
    dist.all_reduce(x)
    if rank == 1:
        dist.all_reduce(x)
    full(1).sum().item()
