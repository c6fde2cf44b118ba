"""unsloth_zoo: frozen layers kept in pinned host memory, fetched ahead in a pool of slots."""

from __future__ import annotations

import importlib.util

import torch

from racegate.interpose import observe

torch.set_num_threads(1)
torch.manual_seed(0)
# The file alone: the package's own start wants an accelerator's driver and patches transformers.
folder = importlib.util.find_spec("unsloth_zoo").submodule_search_locations[0]
spec = importlib.util.spec_from_file_location("block_swap", f"{folder}/block_swap.py")
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
layers = torch.nn.ModuleList([torch.nn.Linear(64, 64, device="cuda") for _ in range(4)])
layers.requires_grad_(False)
swap = module.BlockSwap(layers, 3, prefetch_depth=1)
grads = []
for _ in range(2):
    hidden = start = torch.ones(4, 64, device="cuda", requires_grad=True)
    for layer in layers:
        hidden = torch.utils.checkpoint.checkpoint(layer, hidden, use_reentrant=False).tanh()
    hidden.sum().backward()
    grads.append(start.grad)
observe("gradients", torch.stack(grads))
swap.remove()
