# expect = "silent"
# twin = ["megatron"]
"""The default stream waits for the download, as advised."""

import torch

grads = [torch.ones(64, device="cuda") for _ in range(3)]
weights = [torch.zeros(64, device="cuda") for _ in range(3)]
host = [torch.zeros(64, pin_memory=True) for _ in range(3)]
d2h, h2d = torch.cuda.Stream(), torch.cuda.Stream()


def zero_grad():
    for grad in grads:
        grad.zero_()


def offload():
    d2h.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(d2h):
        for grad, to in zip(grads, host, strict=True):
            to.copy_(grad, non_blocking=True)
    return d2h.record_event()


def update(downloaded):
    downloaded.synchronize()
    with torch.cuda.stream(h2d):
        for weight, source in zip(weights, host, strict=True):
            weight.copy_(source, non_blocking=True)
    torch.cuda.current_stream().wait_stream(h2d)


for _ in range(2):
    downloaded = offload()
    torch.cuda.current_stream().wait_stream(d2h)
    zero_grad()
    update(downloaded)
torch.cuda.synchronize()
