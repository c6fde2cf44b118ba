"""llmcompressor: calibration batches, the next one uploaded by a thread on a stream of its own."""

from __future__ import annotations

import importlib.util
import sys

import torch

from racegate.interpose import observe

torch.set_num_threads(1)
torch.manual_seed(0)
# The file alone: the package's own start imports data sets and what loads models.
folder = importlib.util.find_spec("llmcompressor").submodule_search_locations[0]
spec = importlib.util.spec_from_file_location("cache", f"{folder}/pipelines/cache.py")
module = sys.modules["cache"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
cache = module.IntermediatesCache.empty(4, torch.device("cpu"))
for index in range(4):
    cache.update(index, {"hidden": torch.randn(64, 64).to("cuda")})
    cache.pin_memory(index)
torch.cuda.synchronize()
weight = torch.eye(64, device="cuda")
sums = []
for batch in cache.iter_prefetch():
    sums.append((batch["hidden"] @ weight).sum())
observe("sums", torch.stack(sums))
