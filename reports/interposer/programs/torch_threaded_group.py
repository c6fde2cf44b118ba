"""torch: its process group whose ranks are threads, with a collective on a side stream."""

from __future__ import annotations

import threading

import torch
import torch.distributed as dist
import torch.testing._internal.distributed.multi_threaded_pg as threaded

from racegate.interpose import observe

RANKS = 2
threaded._install_threaded_pg()
torch._C._distributed_c10d._set_thread_isolation_mode(True)
store = dist.HashStore()
sums: list[torch.Tensor | None] = [None] * RANKS


def run(rank: int) -> None:
    """What one rank does."""
    dist.init_process_group(backend="threaded", rank=rank, world_size=RANKS, store=store)
    side = torch.cuda.Stream()
    x = torch.full((64,), rank + 1.0, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = x * 10
        dist.all_reduce(y)
        z = y + 1
    torch.cuda.current_stream().wait_stream(side)
    sums[rank] = z.clone()
    torch.cuda.synchronize()


ranks = [threading.Thread(target=run, args=(rank,)) for rank in range(RANKS)]
for one in ranks:
    one.start()
for one in ranks:
    one.join()
observe("sums", torch.stack([one for one in sums if one is not None]))
