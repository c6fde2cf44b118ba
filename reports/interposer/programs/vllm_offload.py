"""vllm: blocks of the KV cache stored by the worker of OffloadingConnector, or loaded, or both."""

from __future__ import annotations

import importlib
import inspect
import sys

import torch
import vllm_release

vllm_release.name_compiled_parts()
vllm_release.be_on_cuda()
from racegate.interpose import observe

torch.set_num_threads(1)
BLOCKS, BYTES = 8, 64
device = torch.zeros(BLOCKS, BYTES, dtype=torch.int8, device="cuda")
host = torch.zeros(BLOCKS, BYTES, dtype=torch.int8, pin_memory=True)


def named(name: str, *modules: str) -> type:
    """A class of vLLM's, which releases have in one of several modules of `kv_offload`."""
    for module in modules:
        try:
            return getattr(importlib.import_module(f"vllm.v1.kv_offload.{module}"), name)
        except (ModuleNotFoundError, AttributeError):
            continue
    raise ModuleNotFoundError(f"no module of vllm.v1.kv_offload has {name}")


handler_class = named("SingleDirectionOffloadingHandler", "cpu.gpu_worker", "worker.cpu_gpu")
HostBlocks = named("CPULoadStoreSpec", "cpu.common", "mediums")
DeviceBlocks = named("GPULoadStoreSpec", "base", "mediums")


def handler(*, is_store: bool) -> object:
    """In the words of the release."""
    source, target = (device, host) if is_store else (host, device)
    words = {"src_tensors": [source], "dst_tensors": [target], "kv_dim_before_num_blocks": [False]}
    words |= {"src_block_size_factor": 1, "dst_block_size_factor": 1, "priority": 0}
    words |= {"gpu_tensors": [device], "cpu_tensors": [host], "gpu_to_cpu": is_store}
    words |= {"block_size_factor": 1, "blocks_per_chunk": 1}
    known = inspect.signature(handler_class.__init__).parameters
    for groups in known.keys() & {"layer_refs_per_group", "kv_cache_groups_data_refs"}:
        layer = named("CanonicalKVCacheRef", "base", "spec")
        words[groups] = [[layer(tensor_idx=0, page_size_bytes=BYTES)]]
    return handler_class(**{name: value for name, value in words.items() if name in known})


def on_device(blocks: list[int]) -> object:
    """Blocks of the device, of one group of layers."""
    has_groups = "group_sizes" in inspect.signature(DeviceBlocks.__init__).parameters
    return DeviceBlocks(blocks, [len(blocks)], [0]) if has_groups else DeviceBlocks(blocks)


def transfer(source: object, target: object, *, is_store: bool) -> None:
    """One, to its end as the engine is told."""
    moving = handler(is_store=is_store)
    is_pair = "transfer_spec" in inspect.signature(moving.transfer_async).parameters
    assert moving.transfer_async(1, *([(source, target)] if is_pair else [source, target]))
    if hasattr(moving, "wait"):
        moving.wait({1})
    while not moving.get_finished():
        pass


torch.cuda.synchronize()
if sys.argv[1] != "load":
    device[2:4].fill_(7)  # a forward pass writes two blocks
    transfer(on_device([2, 3]), HostBlocks([0, 1]), is_store=True)
    observe("blocks of the host", host[:2].clone())
if sys.argv[1] != "store":
    host[:2].fill_(5)
    device[5:7].fill_(0)  # blocks are zeroed when they are given to a request
    transfer(HostBlocks([0, 1]), on_device([5, 6]), is_store=False)
    observe("blocks of the device", device[5:7])
