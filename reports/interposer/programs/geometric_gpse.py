"""PyTorch Geometric: encodings of a large graph, computed batch by batch and kept on the host."""

from __future__ import annotations

import torch
from torch_geometric.data import Data
from torch_geometric.nn.models import gpse

from racegate.interpose import observe

torch.set_num_threads(1)
torch.manual_seed(0)


class Encoder(torch.nn.Module):
    """Stands for the pretrained encoder, which is a download."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(20, 16)

    def forward(self, batch: Data) -> tuple[torch.Tensor, torch.Tensor]:
        return self.layer(batch.x), batch.y


class Pieces:
    """Stands for the neighbour sampler, which is compiled: pieces of the graph, in order."""

    def __init__(self, data: Data, *args: object, **options: object) -> None:
        self.data = data

    def __iter__(self):
        for start in range(0, self.data.num_nodes, 8):
            nodes = slice(start, start + 8)
            yield Data(x=self.data.x[nodes], y=self.data.y[nodes], batch_size=8)


gpse.NeighborLoader = Pieces
graph = Data(x=torch.zeros(32, 20), y=torch.zeros(32), num_nodes=32)
torch.manual_seed(0)
out = gpse.gpse_process(
    Encoder(),
    graph,
    "BernoulliSE",
    use_vn=False,
    bernoulli_thresh=2.0,
    neighbor_loader=True,
    layers_mp=3,
)
observe("encodings", out)
