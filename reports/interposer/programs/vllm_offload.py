"""vllm: blocks of the KV cache stored by the worker of OffloadingConnector, or loaded, or both."""

from __future__ import annotations

import inspect
import sys

import torch
import vllm_release

vllm_release.name_compiled_parts()
try:
    from vllm.v1.kv_offload.cpu import gpu_worker as worker
    from vllm.v1.kv_offload.cpu.common import CPULoadStoreSpec
except ImportError:  # releases before it had their classes elsewhere
    from vllm.v1.kv_offload.mediums import CPULoadStoreSpec
    from vllm.v1.kv_offload.worker import cpu_gpu as worker

from racegate.interpose import observe

torch.set_num_threads(1)
BLOCKS, BYTES = 8, 64
device = torch.zeros(BLOCKS, BYTES, dtype=torch.int8, device="cuda")
host = torch.zeros(BLOCKS, BYTES, dtype=torch.int8, pin_memory=True)
handler_class = worker.SingleDirectionOffloadingHandler
is_canonical = "layer_refs_per_group" in inspect.signature(handler_class.__init__).parameters


def handler(*, is_store: bool) -> object:
    """In the words of the release."""
    if is_canonical:
        from vllm.v1.kv_offload.base import CanonicalKVCacheRef

        groups = [[CanonicalKVCacheRef(tensor_idx=0, page_size_bytes=BYTES)]]
        return handler_class([device], [host], 1, groups, gpu_to_cpu=is_store)
    source, target = (device, host) if is_store else (host, device)
    words = {"src_tensors": [source], "dst_tensors": [target], "kv_dim_before_num_blocks": [False]}
    words |= {"src_block_size_factor": 1, "dst_block_size_factor": 1, "priority": 0}
    known = inspect.signature(handler_class.__init__).parameters
    return handler_class(**{name: value for name, value in words.items() if name in known})


def on_device(blocks: list[int]) -> object:
    """Blocks of the device."""
    if is_canonical:
        from vllm.v1.kv_offload.base import GPULoadStoreSpec

        return GPULoadStoreSpec(blocks, [len(blocks)], [0])
    from vllm.v1.kv_offload.mediums import GPULoadStoreSpec

    return GPULoadStoreSpec(blocks)


def transfer(source: object, target: object, *, is_store: bool) -> None:
    """One, to its end as the engine is told."""
    pair = (source, target) if is_canonical else ((source, target),)
    moving = handler(is_store=is_store)
    assert moving.transfer_async(1, *pair)
    if hasattr(moving, "wait"):
        moving.wait({1})
    while not moving.get_finished():
        pass


torch.cuda.synchronize()
if sys.argv[1] != "load":
    device[2:4].fill_(7)  # a forward pass writes two blocks
    transfer(on_device([2, 3]), CPULoadStoreSpec([0, 1]), is_store=True)
    observe("blocks of the host", host[:2].clone())
if sys.argv[1] != "store":
    host[:2].fill_(5)
    device[5:7].fill_(0)  # blocks are zeroed when they are given to a request
    transfer(CPULoadStoreSpec([0, 1]), on_device([5, 6]), is_store=False)
    observe("blocks of the device", device[5:7])
