"""Backward passes: each backward operation runs on the stream of its forward operation.

Towards the rest of the program `backward()` behaves like any operation of the stream that is
current when it is called (PyTorch, "Stream semantics of backward passes").
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from .registry import N, observe, racy, silent


def _weight() -> torch.Tensor:
    """A leaf of ones on the device, complete."""
    weight = torch.ones(N, device="cuda", requires_grad=True)
    torch.cuda.synchronize()
    return weight


@racy(pair="backward_grads")
def backward_on_side_unjoined() -> None:
    """`backward()` is called inside a side stream's context; the gradient is used outside without a
    wait.
    """
    weight = _weight()
    weight.grad = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        (weight * 3).sum().backward()
    total = weight.grad.sum()
    torch.cuda.synchronize()
    observe("total", total.item())


@silent(pair="backward_grads")
def backward_on_side_joined() -> None:
    """The default stream waits for the side stream before it uses the gradient."""
    weight = _weight()
    weight.grad = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        (weight * 3).sum().backward()
    torch.cuda.current_stream().wait_stream(side)
    total = weight.grad.sum()
    torch.cuda.synchronize()
    observe("total", total.item())


@silent(pair="backward_grads")
def backward_called_on_default() -> None:
    """Forward on a side stream, `backward()` on the default: autograd makes the caller's stream
    wait for the leaves.
    """
    weight = _weight()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        loss = (weight * 3).sum()
    torch.cuda.current_stream().wait_stream(side)
    loss.backward()
    total = weight.grad.sum()
    torch.cuda.synchronize()
    observe("total", total.item())


@racy(pair="backward_seed")
def backward_seed_unordered() -> None:
    """The initial gradient is filled on a side stream; `backward()` on the default stream does not
    wait for it.
    """
    weight = _weight()
    seed = torch.zeros(N, device="cuda")
    loss = weight * 3
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        seed.fill_(1)
    loss.backward(gradient=seed)
    torch.cuda.synchronize()
    observe("grad", weight.grad.sum().item())


@silent(pair="backward_seed")
def backward_seed_ordered() -> None:
    """The default stream waits for the stream that fills the initial gradient."""
    weight = _weight()
    seed = torch.zeros(N, device="cuda")
    loss = weight * 3
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        seed.fill_(1)
    torch.cuda.current_stream().wait_stream(side)
    loss.backward(gradient=seed)
    torch.cuda.synchronize()
    observe("grad", weight.grad.sum().item())


@racy(pair="forward_branches")
def forward_branches_unjoined() -> None:
    """Two branches of a forward pass run on two streams; their sum does not wait for the second."""
    weight = _weight()
    branch = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()), torch.no_grad():
        torch.mul(weight, 5, out=branch)
    loss = (weight * branch).sum()
    loss.backward()
    torch.cuda.synchronize()
    observe("grad", weight.grad.sum().item())


@silent(pair="forward_branches")
def forward_branches_joined() -> None:
    """Both branches are differentiated: the program orders the forward streams, autograd the
    backward ones.
    """
    weight = _weight()
    side = torch.cuda.Stream()
    main = torch.cuda.current_stream()
    trunk = weight * 2
    side.wait_stream(main)
    with torch.cuda.stream(side):
        branch = trunk * 5
    main.wait_stream(side)
    loss = (trunk + branch).sum()
    loss.backward()
    torch.cuda.synchronize()
    observe("grad", weight.grad.sum().item())


def _reduced_in_hook(reduce: Callable[[torch.Tensor, torch.cuda.Stream], None]) -> float:
    """Trains one weight whose gradient a hook reduces on a communication stream, as data
    parallelism does.
    """
    weight = _weight()
    weight.grad = torch.zeros(N, device="cuda")
    bucket = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    communication = torch.cuda.Stream()

    def hook(parameter: torch.Tensor) -> None:
        reduce(parameter, communication)
        with torch.cuda.stream(communication):
            bucket.add_(parameter.grad, alpha=2)

    weight.register_post_accumulate_grad_hook(hook)
    (weight * 3).sum().backward()
    torch.cuda.current_stream().wait_stream(communication)
    total = bucket.sum()
    torch.cuda.synchronize()
    return total.item()


@racy(pair="gradient_hook")
def gradient_hook_without_wait() -> None:
    """The communication stream reads the gradient in a hook: the host has issued it, no stream has
    computed it.
    """
    observe("total", _reduced_in_hook(lambda parameter, stream: None))


@silent(pair="gradient_hook")
def gradient_hook_with_wait() -> None:
    """In the hook the communication stream waits for the stream that is current there, the
    backward's.
    """
    observe(
        "total",
        _reduced_in_hook(lambda _, stream: stream.wait_stream(torch.cuda.current_stream())),
    )


@silent(pair="gradient_hook")
def gradient_hook_on_settled_memory() -> None:
    """The hook touches what was complete before `backward()`: autograd's thread starts from there.

    The caller's `torch.cuda.synchronize()` comes before the thread begins the backward pass.
    """
    weight = _weight()
    steps, one = torch.zeros(N, device="cuda"), torch.ones(N, device="cuda")
    torch.cuda.synchronize()
    counting = torch.cuda.Stream()

    def hook(_: torch.Tensor) -> None:
        with torch.cuda.stream(counting):
            steps.add_(one)

    weight.register_post_accumulate_grad_hook(hook)
    (weight * 3).sum().backward()
    torch.cuda.synchronize()
    observe("steps", steps.sum().item())


class _Offload:
    """Keeps saved activations in pinned memory and brings them back for the backward pass."""

    def __init__(self) -> None:
        self.copies = torch.cuda.Stream()

    def pack_unordered(self, tensor: torch.Tensor) -> torch.Tensor:
        """Downloads without waiting for the kernel that computes the activation."""
        tensor.record_stream(self.copies)
        with torch.cuda.stream(self.copies):
            return tensor.to("cpu", non_blocking=True)

    def pack(self, tensor: torch.Tensor) -> torch.Tensor:
        """Downloads behind what the current stream was asked to do."""
        self.copies.wait_stream(torch.cuda.current_stream())
        return self.pack_unordered(tensor)

    def unpack(self, host: torch.Tensor) -> torch.Tensor:
        """Uploads behind the download, on the copy stream; the current stream waits for it."""
        with torch.cuda.stream(self.copies):
            tensor = host.to("cuda", non_blocking=True)
        torch.cuda.current_stream().wait_stream(self.copies)
        tensor.record_stream(torch.cuda.current_stream())
        return tensor


@racy(pair="activation_offload")
def activation_offloaded_unordered() -> None:
    """Activations are offloaded on a copy stream that does not wait for the forward pass."""
    weight = _weight()
    offload = _Offload()
    with torch.autograd.graph.saved_tensors_hooks(offload.pack_unordered, offload.unpack):
        loss = (weight * 7).square().sum()
    loss.backward()
    torch.cuda.synchronize()
    observe("grad", weight.grad.sum().item())


@silent(pair="activation_offload")
def activation_offloaded_ordered() -> None:
    """The copy stream waits for the forward pass, blocks are recorded, and the backward pass waits
    for the upload.
    """
    weight = _weight()
    offload = _Offload()
    with torch.autograd.graph.saved_tensors_hooks(offload.pack, offload.unpack):
        loss = (weight * 7).square().sum()
    loss.backward()
    torch.cuda.synchronize()
    observe("grad", weight.grad.sum().item())


@silent(pair="activation_offload")
def save_on_cpu_pinned() -> None:
    """`save_on_cpu(pin_memory=True)` downloads and uploads on the stream that computes, which
    orders all of it.
    """
    weight = _weight()
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        loss = (weight * 7).square().sum()
    loss.backward()
    torch.cuda.synchronize()
    observe("grad", weight.grad.sum().item())


@racy(pair="accumulated_grads")
def grad_zeroed_on_side() -> None:
    """The gradient is zeroed on a side stream while the backward pass accumulates into it."""
    weight = _weight()
    weight.grad = torch.full((N,), 10.0, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        weight.grad.zero_()
    (weight * 3).sum().backward()
    torch.cuda.synchronize()
    observe("grad", weight.grad.sum().item())


@silent(pair="accumulated_grads")
def grad_zeroed_in_place() -> None:
    """The gradient is zeroed on the stream of the backward pass."""
    weight = _weight()
    weight.grad = torch.full((N,), 10.0, device="cuda")
    weight.grad.zero_()
    (weight * 3).sum().backward()
    torch.cuda.synchronize()
    observe("grad", weight.grad.sum().item())
