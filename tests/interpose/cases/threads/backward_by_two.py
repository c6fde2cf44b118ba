# expect = "conflict"
# says = ["shared (", "in differentiate"]
"""Two threads call `backward()`: what autograd does for the one says nothing to the other."""

import threading

import torch

shared = torch.zeros(64, device="cuda")
done: list[bool] = []
torch.cuda.synchronize()


def differentiate(value: float) -> None:
    weight = torch.ones(64, device="cuda", requires_grad=True)
    product = weight * 2
    product.register_hook(lambda gradient: shared.fill_(value))
    product.sum().backward()
    done.append(True)


other = threading.Thread(target=differentiate, args=(1.0,), name="other")
other.start()
while not done:
    pass
differentiate(2.0)
other.join()
