"""auto-round: batches of a diffusion block, staged in two slots by a thread on its own stream."""

from __future__ import annotations

import importlib.util
import logging
import sys
import types
from types import SimpleNamespace

import torch

from racegate.interpose import observe

torch.set_num_threads(1)
torch.manual_seed(0)
# The file alone, with a logger of ours: the package's own start imports much more.
folder = importlib.util.find_spec("auto_round").submodule_search_locations[0]
for name in ("auto_round", "auto_round.logger"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["auto_round.logger"].logger = logging.getLogger("auto_round")
place = f"{folder}/compressors/diffusion/tuning_cache.py"
spec = importlib.util.spec_from_file_location("tuning_cache", place)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)


def select_batch(inputs, others, indices):
    return {"hidden": inputs["hidden"][indices]}, {}


block = torch.nn.Linear(64, 64, device="cuda")
block.orig_layer, block.params = block, {"weight": block.weight}
runner = SimpleNamespace(batch_size=1, select_batch=select_batch, shared_cache_keys=())
sampler = SimpleNamespace(indices=list(range(6)), index=0, nsamples=6, batch_size=1)
inputs = {"hidden": torch.randn(6, 32, 64)}
outputs = list(torch.randn(6, 32, 64))
cache = module.DiffusionTuningCache.create(
    block, runner, inputs, {}, outputs, sampler, 6, 1.0, "cuda"
)
losses = []
with torch.no_grad():
    for index in range(6):
        batch, _, target = cache.get([index])
        losses.append((block(batch["hidden"][0]) - target).pow(2).mean())
cache.close()
observe("losses", torch.stack(losses))
