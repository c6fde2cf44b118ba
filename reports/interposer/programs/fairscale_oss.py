"""fairscale: a sharded optimizer, whose state is gathered on the host to be saved."""

from __future__ import annotations

import tempfile

import torch
from fairscale.optim.oss import OSS

from racegate.interpose import observe

torch.set_num_threads(1)
torch.manual_seed(0)
with tempfile.TemporaryDirectory() as folder:
    torch.distributed.init_process_group(
        "cpu:gloo,cuda:gloo", init_method=f"file://{folder}/store", rank=0, world_size=1
    )
    model = torch.nn.Linear(32, 32).to("cuda")
    optimizer = OSS(model.parameters(), optim=torch.optim.Adam, lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.ones(4, 32, device="cuda")).pow(2).sum().backward()
        optimizer.step()
    optimizer.consolidate_state_dict(recipient_rank=0)
    state = optimizer.state_dict()["state"]
    observe("momenta", torch.cat([one["exp_avg"].flatten().clone() for one in state.values()]))
    torch.distributed.destroy_process_group()
