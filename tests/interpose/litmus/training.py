"""Training steps: metrics, learning rates, optimizers, averages and reductions beside the step."""

from __future__ import annotations

import torch

from .registry import N, observe, racy, silent


def _linear() -> tuple[torch.nn.Linear, torch.optim.SGD]:
    """A linear layer of eight inputs whose weights are ones, and its optimizer."""
    layer = torch.nn.Linear(8, 8, bias=False, device="cuda")
    torch.nn.init.ones_(layer.weight)
    return layer, torch.optim.SGD(layer.parameters(), lr=0.125)


@racy(pair="loss_logging")
def loss_logged_in_its_step() -> None:
    """The loss is downloaded without blocking and logged in the same step."""
    layer, optimizer = _linear()
    inputs = torch.ones(4, 8, device="cuda")
    loss_cpu = torch.zeros((), pin_memory=True)
    logged = []
    for _ in range(3):
        loss = layer(inputs).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss_cpu.copy_(loss.detach(), non_blocking=True)
        logged.append(loss_cpu.item())
    torch.cuda.synchronize()
    observe("logged", logged)


@silent(pair="loss_logging")
def loss_logged_a_step_later() -> None:
    """Two pinned slots and two events: each loss is logged a step later, once it has landed."""
    layer, optimizer = _linear()
    inputs = torch.ones(4, 8, device="cuda")
    losses_cpu = torch.zeros(2, pin_memory=True)
    landed = [torch.cuda.Event(), torch.cuda.Event()]
    logged = []
    for step in range(4):
        loss = layer(inputs).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses_cpu[step % 2].copy_(loss.detach(), non_blocking=True)
        landed[step % 2].record()
        if step > 0:
            landed[(step - 1) % 2].synchronize()
            logged.append(losses_cpu[(step - 1) % 2].item())
    torch.cuda.synchronize()
    observe("logged", logged)


@silent(pair="loss_logging")
def loss_logged_with_item() -> None:
    """`loss.item()` waits for the stream that computed the loss."""
    layer, optimizer = _linear()
    inputs = torch.ones(4, 8, device="cuda")
    logged = []
    for _ in range(3):
        loss = layer(inputs).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        logged.append(loss.item())
    observe("logged", logged)


@racy(pair="step_input")
def training_input_rewritten() -> None:
    """The pinned input of the step is filled with the next batch while its upload is in flight."""
    layer, optimizer = _linear()
    batch_cpu = torch.zeros(4, 8, pin_memory=True)
    inputs = torch.zeros(4, 8, device="cuda")
    for step in range(3):
        batch_cpu.fill_(step + 1.0)
        inputs.copy_(batch_cpu, non_blocking=True)
        layer(inputs).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()
    observe("weight", layer.weight[0, 0].item())


@silent(pair="step_input")
def training_input_waited_for() -> None:
    """The host waits for the upload of a batch before it fills the next."""
    layer, optimizer = _linear()
    batch_cpu = torch.zeros(4, 8, pin_memory=True)
    inputs = torch.zeros(4, 8, device="cuda")
    read = torch.cuda.Event()
    for step in range(3):
        read.synchronize()
        batch_cpu.fill_(step + 1.0)
        inputs.copy_(batch_cpu, non_blocking=True)
        read.record()
        layer(inputs).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()
    observe("weight", layer.weight[0, 0].item())


@silent(pair="step_input")
def training_with_adamw() -> None:
    """A plain AdamW loop on one stream, batches uploaded from pinned memory of their own."""
    layer, _ = _linear()
    optimizer = torch.optim.AdamW(layer.parameters(), lr=0.125)
    for step in range(3):
        batch = torch.full((4, 8), step + 1.0).pin_memory().to("cuda", non_blocking=True)
        layer(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()
    observe("weight", layer.weight[0, 0].item())


@racy(pair="side_optimizer")
def optimizer_on_side_unjoined() -> None:
    """The optimizer steps on a side stream; the next forward pass does not wait for the weights."""
    layer, optimizer = _linear()
    inputs = torch.ones(4, 8, device="cuda")
    side = torch.cuda.Stream()
    layer(inputs).sum().backward()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        optimizer.step()
    output = layer(inputs).sum()
    torch.cuda.synchronize()
    observe("output", output.item())


@silent(pair="side_optimizer")
def optimizer_on_side_joined() -> None:
    """The next forward pass waits for the side stream that updates the weights."""
    layer, optimizer = _linear()
    inputs = torch.ones(4, 8, device="cuda")
    side = torch.cuda.Stream()
    layer(inputs).sum().backward()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        optimizer.step()
    torch.cuda.current_stream().wait_stream(side)
    output = layer(inputs).sum()
    torch.cuda.synchronize()
    observe("output", output.item())


@racy(pair="weight_average")
def weight_average_beside_step() -> None:
    """A moving average reads the weights on a side stream while the optimizer writes the next
    ones.
    """
    layer, optimizer = _linear()
    inputs = torch.ones(4, 8, device="cuda")
    average = torch.zeros(8, 8, device="cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    for _ in range(2):
        layer(inputs).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side), torch.no_grad():
            average.lerp_(layer.weight, 0.5)
    torch.cuda.synchronize()
    observe("average", average[0, 0].item())


@silent(pair="weight_average")
def weight_average_before_step() -> None:
    """The default stream waits for the average of the step before it writes new weights."""
    layer, optimizer = _linear()
    inputs = torch.ones(4, 8, device="cuda")
    average = torch.zeros(8, 8, device="cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    for _ in range(2):
        layer(inputs).sum().backward()
        torch.cuda.current_stream().wait_stream(side)
        optimizer.step()
        optimizer.zero_grad()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side), torch.no_grad():
            average.lerp_(layer.weight, 0.5)
    torch.cuda.synchronize()
    observe("average", average[0, 0].item())


@racy(pair="grads_set_to_none")
def grads_freed_while_reduced() -> None:
    """`zero_grad()` frees the gradient that a side stream is still reading; the next one takes its
    block.
    """
    layer, optimizer = _linear()
    inputs = torch.ones(4, 8, device="cuda")
    reduced = torch.zeros(3, 8, 8, device="cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    for step in range(3):
        (layer(inputs).sum() * (step + 1)).backward()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            reduced[step].copy_(layer.weight.grad)
        optimizer.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
    observe("reduced", reduced[:, 0, 0].tolist())


@silent(pair="grads_set_to_none")
def grads_recorded_before_freed() -> None:
    """The gradient is recorded on the side stream before it is freed."""
    layer, optimizer = _linear()
    inputs = torch.ones(4, 8, device="cuda")
    reduced = torch.zeros(3, 8, 8, device="cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    for step in range(3):
        (layer(inputs).sum() * (step + 1)).backward()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            reduced[step].copy_(layer.weight.grad)
        layer.weight.grad.record_stream(side)
        optimizer.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
    observe("reduced", reduced[:, 0, 0].tolist())


@racy(pair="checkpoint")
def checkpoint_taken_beside_training() -> None:
    """A checkpoint is downloaded on a copy stream while the step after it already updates the
    weights.
    """
    layer, optimizer = _linear()
    inputs = torch.ones(4, 8, device="cuda")
    saved = torch.zeros(8, 8, pin_memory=True)
    copies = torch.cuda.Stream()
    layer(inputs).sum().backward()
    copies.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(copies):
        saved.copy_(layer.weight.detach(), non_blocking=True)
    optimizer.step()
    copies.synchronize()
    observe("saved", saved[0, 0].item())
    torch.cuda.synchronize()


@silent(pair="checkpoint")
def checkpoint_of_snapshot() -> None:
    """The weights are cloned on the training stream; the copy stream downloads the clone."""
    layer, optimizer = _linear()
    inputs = torch.ones(4, 8, device="cuda")
    saved = torch.zeros(8, 8, pin_memory=True)
    copies = torch.cuda.Stream()
    layer(inputs).sum().backward()
    snapshot = layer.weight.detach().clone()
    copies.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(copies):
        saved.copy_(snapshot, non_blocking=True)
    optimizer.step()
    copies.synchronize()
    observe("saved", saved[0, 0].item())
    torch.cuda.synchronize()


@racy(pair="unused_metric", observable=False)
def metric_never_read() -> None:
    """Two streams write a metric in any order, and nobody reads it: a race without a harm."""
    metric = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        metric.fill_(1)
    metric.fill_(2)
    torch.cuda.synchronize()
    observe("done", True)


@silent(pair="unused_metric")
def metric_of_one_stream() -> None:
    """One stream writes the metric twice."""
    metric = torch.zeros(N, device="cuda")
    metric.fill_(1)
    metric.fill_(2)
    torch.cuda.synchronize()
    observe("done", True)
