"""What torch builds of collectives: DDP, FSDP2, hooks."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from rank_programs.registry import Expected, program
from rank_programs.setting import begin, end


def _model() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 4)]
    return nn.Sequential(*layers).cuda()


def _train(model: nn.Module, rank: int, steps: int = 2) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank + 1)
    for _ in range(steps):
        model(torch.randn(8, 16, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def _same_everywhere(values: torch.Tensor, ranks: int) -> bool:
    parts = [torch.empty_like(values) for _ in range(ranks)]
    dist.all_gather(parts, values)
    return all(torch.equal(part, parts[0]) for part in parts)


@program(Expected.SILENT)
def ddp(rank: int, ranks: int) -> None:
    begin(rank)
    model = DistributedDataParallel(_model(), device_ids=[rank], bucket_cap_mb=0.001)
    _train(model, rank)
    flat = torch.cat([one.detach().flatten() for one in model.parameters()])
    assert _same_everywhere(flat, ranks)
    end()


@program(Expected.CONFLICT)
def ddp_with_a_hook_that_does_not_wait(rank: int, ranks: int) -> None:
    begin(rank)
    model = DistributedDataParallel(_model(), device_ids=[rank])

    def hook(state, bucket):  # type: ignore[no-untyped-def]
        dist.all_reduce(bucket.buffer(), async_op=True)
        done = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    model.register_comm_hook(None, hook)
    _train(model, rank, steps=1)
    end()


@program(Expected.SILENT)
def fsdp(rank: int, ranks: int) -> None:
    begin(rank)
    model = _model()
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(model)
    _train(model, rank)
    for one in model.parameters():
        assert _same_everywhere(one.full_tensor().detach(), ranks)  # type: ignore[attr-defined]
    end()


@program(Expected.SILENT)
def gradients_reduced_by_hand(rank: int, ranks: int) -> None:
    begin(rank)
    model = _model()
    model(torch.randn(8, 16, device="cuda")).sum().backward()
    works = [dist.all_reduce(one.grad, async_op=True) for one in model.parameters()]
    for work in works:
        work.wait()
    for one in model.parameters():
        one.data.add_(one.grad, alpha=-0.1)
    end()


@program(Expected.CONFLICT)
def gradients_reduced_and_only_the_first_waited_for(rank: int, ranks: int) -> None:
    begin(rank)
    model = _model()
    model(torch.randn(8, 16, device="cuda")).sum().backward()
    works = [dist.all_reduce(one.grad, async_op=True) for one in model.parameters()]
    works[0].wait()
    for one in model.parameters():
        one.data.add_(one.grad, alpha=-0.1)
    end()


@program(Expected.MISMATCH)
def one_rank_has_a_parameter_more(rank: int, ranks: int) -> None:
    begin(rank)
    sizes = [4, 8, 16] if rank == 0 else [4, 16]
    for size in sizes:
        dist.all_reduce(torch.ones(size, device="cuda"))
    torch.cuda.synchronize()
