"""colossalai: an embedding on the host with a cache of rows on the device, copied by a stream."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types

import torch

from racegate.interpose import observe

# The folder alone: the package's own start wants compiled kernels and Transformer Engine.
place = importlib.util.find_spec("colossalai").submodule_search_locations[0]
package = types.ModuleType("cache_embedding")
package.__path__ = [f"{place}/legacy/nn/parallel/layers/cache_embedding"]
stand_in = types.ModuleType("cache_embedding.copyer")
stand_in.LimitBuffIndexCopyer = object
sys.modules |= {"cache_embedding": package, "cache_embedding.copyer": stand_in}
manager_of = importlib.import_module("cache_embedding.cache_mgr").CachedParamMgr

torch.set_num_threads(1)
torch.manual_seed(0)
weight = torch.randn(64, 16)
manager = manager_of(weight, cuda_row_num=16, buffer_size=0, async_copy=sys.argv[1] == "async")
manager.reorder(None, warmup_ratio=0.5)
rows = []
for step in range(4):
    ids = torch.arange(step * 8, step * 8 + 8, device="cuda")
    slots = manager.prepare_ids(ids)
    rows.append(manager.cuda_cached_weight.index_select(0, slots))
observe("rows", torch.stack(rows))
manager.flush()
observe("weights", manager.weight)
