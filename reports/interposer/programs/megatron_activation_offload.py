"""megatron-core: activations of a layer offloaded to the host, and reloaded for its backward."""

from __future__ import annotations

import inspect
import tempfile
from types import SimpleNamespace

import megatron.core.extensions.transformer_engine as transformer_engine
import megatron.core.pipeline_parallel.fine_grained_activation_offload as module
import torch

from racegate.interpose import observe

torch.set_num_threads(1)
torch.manual_seed(0)
# A flag of Transformer Engine, which is compiled and not needed.
transformer_engine.cpu_offload = SimpleNamespace(CPUOffloadEnabled=False)
with tempfile.TemporaryDirectory() as folder:
    torch.distributed.init_process_group(
        "cpu:gloo,cuda:gloo", init_method=f"file://{folder}/store", rank=0, world_size=1
    )
    offload = module.FineGrainedActivationOffloadingInterface
    options = {
        "vp_size": 1,
        "vp_stage": None,
        "min_offloaded_tensor_size": 1,
        "delta_offload_bytes_across_pp_ranks": 0,
        "activation_offload_fraction": 1.0,
        "pp_rank": 0,
        "max_inflight_offloads": None,
    }
    known = inspect.signature(offload.init_chunk_handler).parameters
    offload.init_chunk_handler(**{key: options[key] for key in known})
    layers = torch.nn.ModuleList([torch.nn.Linear(16, 16) for _ in range(3)]).to("cuda")
    hidden = torch.randn(4, 16, device="cuda", requires_grad=True)
    for layer in layers:
        part = offload(True, hidden, "layer")
        with part as hidden:
            hidden = torch.tanh(layer(hidden))
        if hasattr(offload, "group_commit"):
            hidden = offload.group_commit(hidden, name="layer")
        else:
            hidden = part.group_offload(hidden)
    hidden.pow(2).mean().backward()
    observe("gradients", torch.cat([p.grad.flatten() for p in layers.parameters()]))
    torch.distributed.destroy_process_group()
