# expect = "silent"
"""Factories under FakeTensorMode make no memory, and what rests on them starts: fully_shard."""

import torch
import torch.distributed
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

with FakeTensorMode():
    for made in (torch.empty(4, device="cuda"), torch.randn(4).to("cuda") + 1):
        assert isinstance(made, FakeTensor), type(made)
store = torch.distributed.HashStore()
torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
layer = torch.nn.Linear(4, 4).cuda()
fully_shard(layer, mesh=init_device_mesh("cuda", (1,)))
layer(torch.ones(2, 4, device="cuda")).sum().backward()
torch.cuda.synchronize()
