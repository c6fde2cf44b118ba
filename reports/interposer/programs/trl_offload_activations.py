"""trl: activations of a training step wait for backward on the host, copied on a stream. With the
argument `transposed` they begin where their memory does, which older releases need.
"""

from __future__ import annotations

import sys

import torch
from accelerate import PartialState
from trl.models.activation_offloading import OffloadActivations

from racegate.interpose import observe

torch.set_num_threads(1)
torch.manual_seed(0)
PartialState()  # the library's messages, as that the host has little memory left, need it


class Transposed(torch.nn.Module):
    """Saves what is not contiguous, and begins where its memory does."""

    def __init__(self) -> None:
        super().__init__()
        self.scales = torch.nn.ParameterList([torch.randn(16, 8), torch.randn(8, 16)] * 2)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        for scale in self.scales:
            hidden = torch.tanh((hidden + 1).transpose(1, 2) * scale)
        return hidden


if sys.argv[1:] == ["transposed"]:
    model = Transposed().to("cuda")
else:
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for _ in range(3):
    inputs = torch.randn(2, 8, 16).pin_memory().to("cuda", non_blocking=True)
    optimizer.zero_grad()
    with OffloadActivations(min_offload_size=0, max_fwd_stash_size=2):
        loss = model(inputs).pow(2).mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.detach())
observe("losses", torch.stack(losses))
