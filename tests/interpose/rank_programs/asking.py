"""Questions whether a collective is complete, which have two answers."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist

from rank_programs.registry import Expected, program
from rank_programs.setting import begin, end, full


@program(Expected.SILENT)
def asked_until_complete(rank: int, ranks: int) -> None:
    begin(rank)
    x = full(rank + 1)
    torch.cuda.synchronize()
    work = dist.all_reduce(x, async_op=True)
    while not work.is_completed():
        time.sleep(0.001)
    y = x + 1
    work.wait()
    assert y[0].item() == 4.0
    end()


@program(Expected.CONFLICT)
def asked_once_and_used_anyway(rank: int, ranks: int) -> None:
    begin(rank)
    x, y = full(rank + 1), full(0)
    torch.cuda.synchronize()
    work = dist.all_reduce(x, async_op=True)
    y = x + 1
    work.is_completed()
    work.wait()
    y.sum().item()
    end()


@program(Expected.DEADLOCK)
def asked_for_what_never_comes(rank: int, ranks: int) -> None:
    begin(rank)
    x = full(rank + 1)
    dist.all_reduce(x)
    x.sum().item()
    if rank == 0:
        work = dist.all_reduce(x, async_op=True)
        while not work.is_completed():
            pass


@program(Expected.SILENT)
def asked_before_the_other_may_come(rank: int, ranks: int) -> None:
    """Rank 1 comes only when rank 0 has been told "not ready" and goes on."""
    begin(rank)
    store = dist.distributed_c10d._get_default_store()
    x = full(rank + 1)
    dist.barrier()
    if rank == 0:
        work = dist.all_reduce(x, async_op=True)
        while not work.is_completed():
            store.set("asked", "1")
        work.wait()
    else:
        store.wait(["asked"])
        dist.all_reduce(x)
    assert x[0].item() == 3.0
    end()


@program(Expected.SILENT)
def event_asked_until_complete(rank: int, ranks: int) -> None:
    begin(rank)
    x, event = full(rank + 1), torch.cuda.Event()
    dist.all_reduce(x)
    event.record()
    while not event.query():
        time.sleep(0.001)
    assert x[0].item() == 3.0
    end()
