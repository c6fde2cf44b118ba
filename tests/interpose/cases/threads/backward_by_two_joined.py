# expect = "silent"
# twin = ["backward_by_two"]
"""Two threads call `backward()` one after the other, or each on its own."""

import threading

import torch

shared = torch.zeros(64, device="cuda")


def differentiate(held: torch.Tensor) -> None:
    weight = torch.ones(64, device="cuda", requires_grad=True)
    product = weight * 2
    product.register_hook(lambda gradient: held.fill_(1.0))
    product.sum().backward()
    held.add_(weight.grad)


for _ in range(3):
    other = threading.Thread(target=differentiate, args=(shared,))
    other.start()
    other.join()
    differentiate(shared)
others = [
    threading.Thread(target=differentiate, args=(torch.zeros(64, device="cuda"),)) for _ in range(3)
]
for other in others:
    other.start()
differentiate(torch.zeros(64, device="cuda"))
for other in others:
    other.join()
