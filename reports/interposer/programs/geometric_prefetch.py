"""PyTorch Geometric: its PrefetchLoader uploads the next graph while the model trains."""

from __future__ import annotations

import torch
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader, PrefetchLoader
from torch_geometric.nn import GraphConv

from racegate.interpose import observe

torch.set_num_threads(1)
torch.manual_seed(0)
ring = torch.stack([torch.arange(16), torch.arange(16).roll(-1)])
graphs = [Data(x=torch.randn(16, 32), edge_index=ring) for _ in range(6)]
loader = PrefetchLoader(DataLoader(graphs, batch_size=1), device=torch.device("cuda"))
model = GraphConv(32, 1).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
losses = []
for graph in loader:
    loss = model(graph.x, graph.edge_index).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.detach())
observe("losses", torch.stack(losses))
