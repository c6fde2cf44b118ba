"""megatron-core: an optimizer half on the host, half on the device, with overlapped copies."""

from __future__ import annotations

import megatron.core.optimizer.cpu_offloading.hybrid_optimizer as module
import torch

from racegate.interpose import observe

torch.set_num_threads(1)
torch.manual_seed(0)
layers = [torch.nn.Linear(32, 32, bias=False) for _ in range(4)]
model = torch.nn.Sequential(*layers).to("cuda", torch.bfloat16)
optimizer = module.HybridDeviceOptimizer(
    list(model.parameters()),
    offload_fraction=0.5,
    cpu_optimizer_cls=torch.optim.AdamW,
    gpu_optimizer_cls=torch.optim.AdamW,
    param_update_in_fp32=True,
    overlap_cpu_optimizer_d2h_h2d=True,
    lr=0.01,
)
losses = []
for _ in range(3):
    inputs = torch.ones(4, 32, device="cuda", dtype=torch.bfloat16)
    loss = model(inputs).float().pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.detach())
observe("losses", torch.stack(losses))
