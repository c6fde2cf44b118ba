"""Sends and receives, alone and in groups."""

from __future__ import annotations

import torch
import torch.distributed as dist

from rank_programs.registry import Expected, program
from rank_programs.setting import begin, end, full


@program(Expected.SILENT)
def there_and_back(rank: int, ranks: int) -> None:
    begin(rank)
    x = full(rank + 1)
    if rank == 0:
        dist.send(x, 1)
        dist.recv(x, 1)
        assert x[0].item() == 2.0
    else:
        y = torch.empty_like(x)
        dist.recv(y, 0)
        dist.send(y * 2, 0)
    end()


@program(Expected.DEADLOCK)
def both_send_first(rank: int, ranks: int) -> None:
    begin(rank)
    x, y = full(rank), full(0)
    dist.send(x, 1 - rank)
    dist.recv(y, 1 - rank)
    torch.cuda.synchronize()


@program(Expected.DEADLOCK)
def both_receive_first(rank: int, ranks: int) -> None:
    begin(rank)
    x, y = full(rank), full(0)
    dist.recv(y, 1 - rank)
    dist.send(x, 1 - rank)
    torch.cuda.synchronize()


@program(Expected.SILENT)
def exchanged_in_a_batch(rank: int, ranks: int) -> None:
    begin(rank)
    x, y = full(rank + 1), full(0)
    ops = [dist.P2POp(dist.isend, x, 1 - rank), dist.P2POp(dist.irecv, y, 1 - rank)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert y[0].item() == 2.0 - rank
    end()


@program(Expected.CONFLICT)
def batch_used_without_wait(rank: int, ranks: int) -> None:
    begin(rank)
    x, y = full(rank + 1), full(0)
    ops = [dist.P2POp(dist.isend, x, 1 - rank), dist.P2POp(dist.irecv, y, 1 - rank)]
    works = dist.batch_isend_irecv(ops)
    z = y + 1
    for work in works:
        work.wait()
    z.sum().item()
    end()


@program(Expected.CONFLICT)
def sent_and_overwritten(rank: int, ranks: int) -> None:
    begin(rank)
    x = full(rank + 1)
    if rank == 0:
        work = dist.isend(x, 1)
        x.zero_()
    else:
        work = dist.irecv(x, 0)
    work.wait()
    end()


@program(Expected.SILENT)
def sent_and_read(rank: int, ranks: int) -> None:
    begin(rank)
    x = full(rank + 1)
    work = dist.isend(x, 1) if rank == 0 else dist.irecv(x, 0)
    if rank == 0:
        (x + 1).sum()
    work.wait()
    assert x[0].item() == 1.0
    end()


@program(Expected.MISMATCH)
def message_of_another_size(rank: int, ranks: int) -> None:
    begin(rank)
    x = full(rank, size=4 + rank)
    if rank == 0:
        dist.send(x, 1)
    else:
        dist.recv(x, 0)
    torch.cuda.synchronize()


@program(Expected.DEADLOCK)
def message_that_nobody_sends(rank: int, ranks: int) -> None:
    begin(rank)
    x = full(rank)
    if rank == 0:
        dist.send(x, 1)
        torch.cuda.synchronize()
    else:
        dist.recv(x, 0)
        dist.recv(x, 0)
        torch.cuda.synchronize()


@program(Expected.SILENT, ranks=3)
def ring_with_one_that_turns(rank: int, ranks: int) -> None:
    """Rank 0 sends before it receives, the others the other way round."""
    begin(rank)
    x, y = full(rank), full(0)
    before, behind = (rank - 1) % ranks, (rank + 1) % ranks
    if rank == 0:
        dist.send(x, behind)
        dist.recv(y, before)
    else:
        dist.recv(y, before)
        dist.send(x, behind)
    assert y[0].item() == before
    end()


@program(Expected.DEADLOCK, ranks=3)
def ring_in_which_all_receive_first(rank: int, ranks: int) -> None:
    begin(rank)
    x, y = full(rank), full(0)
    dist.recv(y, (rank - 1) % ranks)
    dist.send(x, (rank + 1) % ranks)
    torch.cuda.synchronize()


@program(Expected.SILENT)
def gathered_and_scattered(rank: int, ranks: int) -> None:
    begin(rank)
    x = full(rank + 1)
    parts = [torch.empty_like(x) for _ in range(ranks)] if rank == 0 else None
    dist.gather(x, parts, dst=0)
    y = torch.empty_like(x)
    dist.scatter(y, None if parts is None else [part * 10 for part in parts], src=0)
    assert y[0].item() == 10.0 * (rank + 1)
    end()


@program(Expected.SILENT)
def ordered_through_the_other(rank: int, ranks: int) -> None:
    """The only order of `fill_` and `add_` goes through rank 1."""
    begin(rank)
    there, back = dist.new_group([0, 1]), dist.new_group([0, 1])
    token, answer, buffer = full(0, size=1), full(0, size=1), full(0, size=64)
    one, other = torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()
    if rank == 0:
        with torch.cuda.stream(one):
            buffer.fill_(1)
            dist.send(token, 1, group=there)
        with torch.cuda.stream(other):
            dist.recv(answer, 1, group=back)
            buffer.add_(1)
    else:
        dist.recv(token, 0, group=there)
        dist.send(token, 0, group=back)
    end()


@program(Expected.CONFLICT)
def not_ordered_through_the_other(rank: int, ranks: int) -> None:
    """Rank 1 answers without having received."""
    begin(rank)
    there, back = dist.new_group([0, 1]), dist.new_group([0, 1])
    token, answer, buffer = full(0, size=1), full(0, size=1), full(0, size=64)
    one, other = torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()
    if rank == 0:
        with torch.cuda.stream(one):
            buffer.fill_(1)
            dist.send(token, 1, group=there)
        with torch.cuda.stream(other):
            dist.recv(answer, 1, group=back)
            buffer.add_(1)
    else:
        with torch.cuda.stream(one):
            dist.recv(token, 0, group=there)
        with torch.cuda.stream(other):
            dist.send(answer, 0, group=back)
    end()
