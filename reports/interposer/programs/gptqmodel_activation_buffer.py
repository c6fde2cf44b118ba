"""gptqmodel: activations copied to the host on a stream of their own, and collected later.

The argument is the package's file: the rest of it is not needed.
"""

from __future__ import annotations

import importlib.util
import sys

import torch

from racegate.interpose import observe

torch.manual_seed(0)
spec = importlib.util.find_spec("gptqmodel")
place = spec.submodule_search_locations[0] + "/utils/cuda_activation_buffer.py"
spec = importlib.util.spec_from_file_location("cuda_activation_buffer", place)
module = sys.modules["cuda_activation_buffer"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
buffer = module.CudaEventActivationBuffer("cuda", pin_memory=True)
layers = [torch.nn.Linear(64, 64, device="cuda") for _ in range(3)]
hidden = torch.randn(32, 64).to("cuda")
with torch.no_grad():
    for layer in layers:
        hidden = torch.relu(layer(hidden))
        buffer.capture_async(hidden)
host = [packet.host_tensor for packet in buffer.drain(wait=True)]
observe("activations", torch.stack(host))
