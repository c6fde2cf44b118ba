# expect = "silent"
"""DDP hands buckets to threads of C++ code by a queue that nobody sees, and waits there."""

import torch
import torch.distributed

store = torch.distributed.HashStore()
torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
torch.manual_seed(0)
layers = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)).cuda()
model = torch.nn.parallel.DistributedDataParallel(layers, bucket_cap_mb=0.0001)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(3):
    batch = torch.randn(4, 8).pin_memory().cuda(non_blocking=True)
    model(batch).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
torch.cuda.synchronize()
