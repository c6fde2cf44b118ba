"""torchtune: activations offloaded to the host while a layer's forward pass goes on.

What the file imports of torchtune and torchao, and does not need here, are stand-ins.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
import types

import torch

from racegate.interpose import observe

folder = importlib.util.find_spec("torchtune").submodule_search_locations[0]
for name, values in {
    "torchao": {},
    "torchao.dtypes": {},
    "torchao.dtypes.nf4tensor": {"NF4Tensor": type("NF4Tensor", (), {})},
    "torchtune": {},
    "torchtune.modules": {"TiedLinear": type("TiedLinear", (), {})},
    "torchtune.utils": {"get_logger": logging.getLogger},
}.items():
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__dict__.update(values)
place = f"{folder}/training/_activation_offloading.py"
spec = importlib.util.spec_from_file_location("offloading", place)
offloading = importlib.util.module_from_spec(spec)
spec.loader.exec_module(offloading)

torch.set_num_threads(1)
torch.manual_seed(0)
layers = [part for _ in range(3) for part in (torch.nn.Linear(64, 64), torch.nn.GELU())]
model = torch.nn.Sequential(*layers).to("cuda")
grads = []
for _ in range(2):
    with offloading.OffloadActivations(use_pin_memory=True, use_streams=True, min_offload_size=64):
        loss = model(torch.randn(16, 64).to("cuda")).pow(2).mean()
    loss.backward()
    grads.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    model.zero_grad()
observe("gradients", torch.stack(grads))
