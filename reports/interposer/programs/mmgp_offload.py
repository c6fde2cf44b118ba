"""mmgp: blocks of a model uploaded one after the other, the next while the present one computes."""

from __future__ import annotations

import torch
from mmgp import offload

from racegate.interpose import observe

torch.set_num_threads(1)
torch.manual_seed(0)


class Blocks(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList([torch.nn.Linear(64, 64) for _ in range(4)])

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            hidden = torch.relu(block(hidden))
        return hidden


model = Blocks()
handler = offload.all(
    {"transformer": model},
    pinnedMemory=True,
    budgets=1,
    quantizeTransformer=False,
    asyncTransfers=True,
)
with torch.no_grad():
    outputs = [model(torch.ones(4, 64, device="cuda")) for _ in range(2)]
observe("outputs", torch.stack(outputs))
