"""What waits for a collective, and what does not."""

from __future__ import annotations

import torch
import torch.distributed as dist

from rank_programs.registry import Expected, program
from rank_programs.setting import begin, end, full


@program(Expected.SILENT)
def synchronous(rank: int, ranks: int) -> None:
    begin(rank)
    x = full(rank + 1)
    dist.all_reduce(x)
    assert x.tolist() == [3.0] * 4
    end()


@program(Expected.SILENT)
def waited_for(rank: int, ranks: int) -> None:
    begin(rank)
    x = full(rank + 1)
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    assert (x + 1).tolist() == [4.0] * 4
    end()


@program(Expected.CONFLICT)
def result_used_without_wait(rank: int, ranks: int) -> None:
    begin(rank)
    x = full(rank + 1)
    work = dist.all_reduce(x, async_op=True)
    y = x + 1
    work.wait()
    y.sum().item()
    end()


@program(Expected.CONFLICT)
def source_overwritten_without_wait(rank: int, ranks: int) -> None:
    begin(rank)
    x = full(rank + 1)
    parts = [torch.empty_like(x) for _ in range(ranks)]
    work = dist.all_gather(parts, x, async_op=True)
    x.zero_()
    work.wait()
    end()


@program(Expected.SILENT)
def source_overwritten_behind_wait(rank: int, ranks: int) -> None:
    begin(rank)
    x = full(rank + 1)
    parts = [torch.empty_like(x) for _ in range(ranks)]
    dist.all_gather(parts, x, async_op=True).wait()
    x.zero_()
    assert parts[1].tolist() == [2.0] * 4
    end()


@program(Expected.SILENT)
def source_read_before_wait(rank: int, ranks: int) -> None:
    begin(rank)
    x = full(rank + 1)
    parts = [torch.empty_like(x) for _ in range(ranks)]
    work = dist.all_gather(parts, x, async_op=True)
    (x + 1).sum()
    work.wait()
    end()


@program(Expected.SILENT)
def never_waited_for_nor_used(rank: int, ranks: int) -> None:
    begin(rank)
    x = full(rank + 1)
    work = dist.all_reduce(x, async_op=True)
    torch.cuda.synchronize()
    del work
    end()


@program(Expected.CONFLICT)
def one_rank_uses_it_without_wait(rank: int, ranks: int) -> None:
    begin(rank)
    x = full(rank + 1)
    work = dist.all_reduce(x, async_op=True)
    if rank == 0:
        work.wait()
    y = x * 2
    work.wait()
    y.sum().item()
    end()


@program(Expected.CONFLICT)
def waited_for_on_another_stream(rank: int, ranks: int) -> None:
    begin(rank)
    x = full(rank + 1)
    work = dist.all_reduce(x, async_op=True)
    with torch.cuda.stream(torch.cuda.Stream()):
        work.wait()
    y = x + 1
    torch.cuda.synchronize()
    del y
    end()


@program(Expected.SILENT)
def side_stream_joined(rank: int, ranks: int) -> None:
    begin(rank)
    x, side = full(rank + 1), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        dist.all_reduce(x)
    torch.cuda.current_stream().wait_stream(side)
    assert x.tolist() == [3.0] * 4
    end()


@program(Expected.CONFLICT)
def side_stream_that_does_not_wait(rank: int, ranks: int) -> None:
    begin(rank)
    x, side = full(rank + 1), torch.cuda.Stream()
    with torch.cuda.stream(side):
        dist.all_reduce(x)
    torch.cuda.synchronize()
    end()


@program(Expected.CONFLICT)
def side_stream_not_joined(rank: int, ranks: int) -> None:
    begin(rank)
    x, side = full(rank + 1), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        dist.all_reduce(x)
    y = x + 1
    torch.cuda.synchronize()
    del y
    end()


@program(Expected.SILENT)
def host_waits_for_all(rank: int, ranks: int) -> None:
    begin(rank)
    x = full(rank + 1)
    work = dist.all_reduce(x, async_op=True)
    torch.cuda.synchronize()
    y = x + 1
    work.wait()
    assert y.tolist() == [4.0] * 4
    end()


@program(Expected.SILENT, ranks=3)
def three_ranks(rank: int, ranks: int) -> None:
    begin(rank)
    x = full(rank + 1)
    dist.all_reduce(x)
    assert x.tolist() == [6.0] * 4
    end()


@program(Expected.CONFLICT, ranks=3)
def three_ranks_without_wait(rank: int, ranks: int) -> None:
    begin(rank)
    x = full(rank + 1)
    work = dist.reduce(x, 1, async_op=True)
    x.mul_(2)
    work.wait()
    end()


@program(Expected.SILENT)
def one_runs_ahead(rank: int, ranks: int) -> None:
    """Rank 0 issues all of it before rank 1 issues anything: no host waits for a collective."""
    begin(rank)
    store = dist.distributed_c10d._get_default_store()
    x = full(rank + 1)
    dist.barrier()
    if rank == 1:
        store.wait(["issued"])
    for _ in range(3):
        dist.all_reduce(x)
    if rank == 0:
        store.set("issued", "1")
    assert x.tolist() == [12.0] * 4
    end()


@program(Expected.DEADLOCK)
def one_runs_ahead_of_the_first(rank: int, ranks: int) -> None:
    """The first collective of a group makes its communicator: hosts wait for each other there."""
    begin(rank)
    store = dist.distributed_c10d._get_default_store()
    x = full(rank + 1)
    if rank == 1:
        store.wait(["issued"])
    dist.all_reduce(x)
    if rank == 0:
        store.set("issued", "1")
    end()


@program(Expected.SILENT)
def copy_to_the_host_landed_for_another_rank(rank: int, ranks: int) -> None:
    """Rank 0 needs what stands behind the copy, while the host of rank 1 is elsewhere."""
    begin(rank)
    store = dist.distributed_c10d._get_default_store()
    x, kept = full(rank + 1, 1024), torch.zeros(1024).pin_memory()
    dist.all_reduce(x)
    kept.copy_(x, non_blocking=True)
    dist.all_reduce(x)
    if rank == 0:
        torch.cuda.synchronize()
        store.set("here", "1")
    else:
        store.wait(["here"])
        torch.cuda.synchronize()
    assert kept[0].item() == 3.0
    end()
