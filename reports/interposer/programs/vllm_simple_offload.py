"""vllm: blocks of the KV cache offloaded by a copy thread, and loaded into blocks used again."""

from __future__ import annotations

import sys
import time

import torch
import vllm_release

vllm_release.name_compiled_parts()
vllm_release.be_on_cuda()
from vllm.v1.simple_kv_offload.copy_backend import DmaCopyBackend
from vllm.v1.simple_kv_offload.cuda_mem_ops import pin_tensor
from vllm.v1.simple_kv_offload.metadata import SimpleCPUOffloadMetadata
from vllm.v1.simple_kv_offload.worker import SimpleCPUOffloadWorker

from racegate.interpose import observe

torch.set_num_threads(1)
device = {"layer": torch.zeros(8, 64, dtype=torch.int8, device="cuda")}
host = {"layer": torch.zeros(8, 64, dtype=torch.int8)}
pin_tensor(host["layer"])
worker = SimpleCPUOffloadWorker(vllm_config=None, kv_cache_config=None, cpu_capacity_bytes=0)
backend = worker._backend = DmaCopyBackend()
backend.init(device, host, device["layer"].device, torch.cuda.Stream(), torch.cuda.Stream())
torch.cuda.synchronize()
nothing = {
    "load_event": -1,
    "load_gpu_blocks": [],
    "load_cpu_blocks": [],
    "store_event": -1,
    "store_gpu_blocks": [],
    "store_cpu_blocks": [],
}


def step(mark: str, **transfer: object) -> None:
    """What the runner calls around a forward pass, and then until the transfer has come to its end.
    mark: where the worker keeps which one was the last that did
    """
    worker.bind_connector_metadata(SimpleCPUOffloadMetadata(**{**nothing, **transfer}))
    worker.start_load_kv()
    worker.wait_for_save()
    worker.get_finished(set())
    worker.clear_connector_metadata()
    while getattr(worker, mark) < 0:
        time.sleep(0.001)
        worker.get_finished(set())


if sys.argv[1] == "store":
    device["layer"][2:4].fill_(7)  # a forward pass writes two blocks
    step("_store_hwm", store_event=0, store_gpu_blocks=[2, 3], store_cpu_blocks=[0, 1])
    observe("blocks of the host", host["layer"][:2].clone())
else:
    host["layer"][:2].fill_(5)
    last = device["layer"][5:7].sum()  # the last owner of two blocks still reads them
    step("_load_hwm", load_event=0, load_gpu_blocks=[5, 6], load_cpu_blocks=[0, 1])
    observe("of the last owner", last)
    observe("blocks of the device", device["layer"][5:7])
backend.shutdown()
