"""Memory that is freed, kept or used again while a collective is in flight."""

from __future__ import annotations

import torch
import torch.distributed as dist

from rank_programs.registry import Expected, program
from rank_programs.setting import begin, end, full

N = 4096


def _stash(*, recorded: bool) -> None:
    """pytorch/pytorch#188655: torch keeps the tensors of a collective until `wait()`, on whatever
    stream that is called. Behind it the memory is free for its own stream, which has not waited.
    """
    own, side = torch.cuda.current_stream(), torch.cuda.Stream()
    zeros = full(0, size=N)
    x = zeros + 1
    side.wait_stream(own)
    with torch.cuda.stream(side):
        work = dist.all_reduce(x, async_op=True)
        work.wait()
        if recorded:
            x.record_stream(side)
        del work, x
    y = zeros + 1
    torch.cuda.synchronize()
    del y


@program(Expected.CONFLICT)
def freed_behind_a_wait_on_another_stream(rank: int, ranks: int) -> None:
    begin(rank)
    _stash(recorded=False)
    end()


@program(Expected.SILENT)
def recorded_on_the_stream_that_waits(rank: int, ranks: int) -> None:
    begin(rank)
    _stash(recorded=True)
    end()


@program(Expected.SILENT)
def freed_while_torch_keeps_it(rank: int, ranks: int) -> None:
    begin(rank)
    x = full(rank + 1, size=N)
    work = dist.all_reduce(x, async_op=True)
    del x
    y = full(2, size=N) + 1
    work.wait()
    assert y[0].item() == 3.0
    end()


@program(Expected.CONFLICT)
def bucket_filled_again_before_its_wait(rank: int, ranks: int) -> None:
    begin(rank)
    bucket, works = full(0, size=N), []
    for step in range(2):
        bucket.fill_(step + rank)
        works.append(dist.all_reduce(bucket, async_op=True))
    for work in works:
        work.wait()
    end()


@program(Expected.SILENT)
def two_buckets_in_turn(rank: int, ranks: int) -> None:
    begin(rank)
    buckets, works = [full(0, size=N), full(0, size=N)], []
    for step in range(4):
        if step > 1:
            works[step - 2].wait()
        buckets[step % 2].fill_(step + rank)
        works.append(dist.all_reduce(buckets[step % 2], async_op=True))
    for work in works[2:]:
        work.wait()
    assert buckets[1][0].item() == 7.0
    end()


@program(Expected.CONFLICT)
def upload_into_what_is_in_flight(rank: int, ranks: int) -> None:
    begin(rank)
    x, pinned = full(rank), torch.ones(4, pin_memory=True)
    work = dist.all_reduce(x, async_op=True)
    x.copy_(pinned, non_blocking=True)
    work.wait()
    end()


@program(Expected.CONFLICT)
def download_of_what_is_in_flight(rank: int, ranks: int) -> None:
    begin(rank)
    x, pinned = full(rank), torch.zeros(4, pin_memory=True)
    work = dist.all_reduce(x, async_op=True)
    pinned.copy_(x, non_blocking=True)
    torch.cuda.synchronize()
    work.wait()
    end()


@program(Expected.SILENT)
def download_behind_the_wait(rank: int, ranks: int) -> None:
    begin(rank)
    x, pinned = full(rank), torch.zeros(4, pin_memory=True)
    dist.all_reduce(x, async_op=True).wait()
    pinned.copy_(x, non_blocking=True)
    torch.cuda.synchronize()
    assert pinned[0].item() == 1.0
    end()


@program(Expected.CONFLICT)
def download_read_without_a_wait(rank: int, ranks: int) -> None:
    begin(rank)
    x, pinned = full(rank), torch.zeros(4, pin_memory=True)
    dist.all_reduce(x)
    pinned.copy_(x, non_blocking=True)
    pinned.sum()
    end()
