"""invokeai: a model that its cache moves to the device and back, and whose weights the host reads.

Needs the wheel alone: what its modules import beside torch has stand-ins, the packages' own
`__init__` among them.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
from types import ModuleType

import torch

from racegate.interpose import observe


class StandIn(ModuleType):
    """Any name of it is a type that takes anything."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"__init__": lambda self, *given: None})


ROOT = importlib.util.find_spec("invokeai").submodule_search_locations[0]
MANAGER = "invokeai.backend.model_manager"
CACHE = f"{MANAGER}.load.model_cache"
for package in ("invokeai.backend", "invokeai.backend.util", MANAGER, f"{MANAGER}.load", CACHE):
    sys.modules[package] = StandIn(package)
    sys.modules[package].__path__ = ["/".join([ROOT, *package.split(".")[1:]])]
for name in (
    "deprecated",
    "invokeai.app.services.config.config_default",
    "invokeai.backend.util.logging",
    f"{MANAGER}.config",
    f"{MANAGER}.load.memory_snapshot",
    f"{MANAGER}.load.model_util",
):
    sys.modules[name] = StandIn(name)
sys.modules["deprecated"].deprecated = lambda *args, **words: lambda function: function
from invokeai.backend.model_manager.load.model_cache.model_cache_base import CacheRecord
from invokeai.backend.model_manager.load.model_cache.model_cache_default import ModelCache

torch.set_num_threads(1)
torch.manual_seed(0)
cache = ModelCache(log_memory_usage=False, logger=logging.getLogger("cache"))
model = torch.nn.Linear(8, 4)
model.device = torch.device("cpu")  # a model without one stays on the host in 4.2.4
record = CacheRecord(
    key="model", model=model, device=model.device, state_dict=None, size=model.weight.nbytes
)
with torch.no_grad():
    cache.move_model_to_device(record, torch.device("cuda"))
    model.weight.mul_(2)  # a LoRA is patched in
    cache.move_model_to_device(record, torch.device("cpu"))
    observe("sum of the weights", model.weight.sum())
