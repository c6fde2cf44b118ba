"""Layers that CUDA computes in one kernel and the CPU in parts: recurrent cells, normalisation over
several devices, products with another type of result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from racegate.interpose.native import factories

Tensor = Any


def _wide(tensor: Tensor) -> Tensor:
    return tensor if tensor.dtype is torch.float64 else tensor.float()


def _biased(gates: Tensor, bias: Tensor | None) -> Tensor:
    return _wide(gates) if bias is None else _wide(gates) + _wide(bias)


def lstm_cell(
    input_gates: Tensor,  # [B, 4H] in the order input, forget, cell, output
    hidden_gates: Tensor,  # [B, 4H]
    cx: Tensor,  # [B, H]
    input_bias: Tensor | None = None,  # [4H]
    hidden_bias: Tensor | None = None,
) -> tuple[Any, ...]:
    """`_thnn_fused_lstm_cell`: the new hidden and cell state [B, H], and the activated gates."""
    gates = _biased(input_gates, input_bias) + _biased(hidden_gates, hidden_bias)
    first, forget, cell, last = gates.chunk(4, 1)
    first, forget, last = first.sigmoid(), forget.sigmoid(), last.sigmoid()
    cell = cell.tanh()
    cy = forget * _wide(cx) + first * cell
    workspace = torch.cat((first, forget, cell, last), 1)
    dtype = input_gates.dtype
    return (last * cy.tanh()).to(dtype), cy.to(dtype), workspace.to(dtype)


def lstm_cell_backward(
    grad_hy: Tensor | None,  # [B, H]
    grad_cy: Tensor | None,
    cx: Tensor,
    cy: Tensor,
    workspace: Tensor,  # [B, 4H]
    has_bias: bool,
) -> tuple[Any, ...]:
    """`_thnn_fused_lstm_cell_backward_impl`: gradients of gates [B, 4H], cell state, bias."""
    first, forget, cell, last = _wide(workspace).chunk(4, 1)
    of_hidden = factories.zeros_like(first) if grad_hy is None else _wide(grad_hy)
    of_cell = factories.zeros_like(first) if grad_cy is None else _wide(grad_cy)
    bent = _wide(cy).tanh()
    of_cell = of_cell + of_hidden * last * (1 - bent * bent)
    gates = (
        of_cell * cell * (1 - first) * first,
        of_cell * _wide(cx) * (1 - forget) * forget,
        of_cell * first * (1 - cell * cell),
        of_hidden * bent * (1 - last) * last,
    )
    of_gates = torch.cat(gates, 1).to(workspace.dtype)
    return of_gates, (of_cell * forget).to(cx.dtype), of_gates.sum(0) if has_bias else None


def gru_cell(
    input_gates: Tensor,  # [B, 3H] in the order reset, update, new
    hidden_gates: Tensor,
    hx: Tensor,  # [B, H]
    input_bias: Tensor | None = None,  # [3H]
    hidden_bias: Tensor | None = None,
) -> tuple[Any, ...]:
    """`_thnn_fused_gru_cell`: the new state [B, H], and what the backward pass needs [B, 5H]."""
    of_input = _biased(input_gates, input_bias).chunk(3, 1)
    of_hidden = _biased(hidden_gates, hidden_bias).chunk(3, 1)
    reset = (of_input[0] + of_hidden[0]).sigmoid()
    update = (of_input[1] + of_hidden[1]).sigmoid()
    new = (of_input[2] + reset * of_hidden[2]).tanh()
    state = _wide(hx)
    workspace = torch.cat((reset, update, new, state, of_hidden[2]), 1)
    dtype = input_gates.dtype
    return (new + update * (state - new)).to(dtype), workspace.to(dtype)


def gru_cell_backward(grad_hy: Tensor, workspace: Tensor, has_bias: bool) -> tuple[Any, ...]:
    """`_thnn_fused_gru_cell_backward`: gradients of both gates [B, 3H], the state, both biases."""
    reset, update, new, state, hidden = _wide(workspace).chunk(5, 1)
    grad = _wide(grad_hy)
    of_update = grad * (state - new) * (1 - update) * update
    of_new = grad * (1 - update) * (1 - new * new)
    of_reset = of_new * hidden * (1 - reset) * reset
    dtype = workspace.dtype
    inputs = torch.cat((of_reset, of_update, of_new), 1).to(dtype)
    hiddens = torch.cat((of_reset, of_update, of_new * reset), 1).to(dtype)
    biases = (inputs.sum(0), hiddens.sum(0)) if has_bias else (None, None)
    return inputs, hiddens, (grad * update).to(dtype), *biases


def rms_norm_backward(
    grad_out: Tensor,
    input: Tensor,  # [..., *normalized_shape]
    normalized_shape: list[int],
    rstd: Tensor,
    weight: Tensor | None,
    output_mask: list[bool],
) -> tuple[Any, ...]:
    """`_fused_rms_norm_backward`: gradients of the input and of the weight, as asked for."""
    inner = tuple(range(input.dim() - len(normalized_shape), input.dim()))
    outer = tuple(range(inner[0]))
    grad, unit = _wide(grad_out), _wide(input) * _wide(rstd)
    of_unit = grad if weight is None else grad * _wide(weight)
    of_input = _wide(rstd) * (of_unit - unit * (of_unit * unit).mean(inner, keepdim=True))
    of_weight = None
    if weight is not None and output_mask[1]:
        of_weight = (grad * unit).sum(outer) if outer else grad * unit
        of_weight = of_weight.to(weight.dtype)
    return of_input.to(input.dtype) if output_mask[0] else None, of_weight


def _per_channel(values: Tensor, like: Tensor) -> Tensor:
    """[C] as something that goes with [N, C, ...]."""
    return _wide(values).view(1, -1, *[1] * (like.dim() - 2))


def _all_but_channels(tensor: Tensor) -> tuple[int, ...]:
    return (0, *range(2, tensor.dim()))


def batch_norm_stats(input: Tensor, eps: float) -> tuple[Any, ...]:  # [N, C, ...]
    """`batch_norm_stats`: mean and inverse deviation of each channel, [C] float32."""
    variance, mean = torch.var_mean(_wide(input), _all_but_channels(input), correction=0)
    return mean, (variance + eps).rsqrt()


def batch_norm_elemt(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    invstd: Tensor,
    eps: float,
) -> Tensor:
    """`batch_norm_elemt`: the input normalised by statistics of several devices."""
    result = (_wide(input) - _per_channel(mean, input)) * _per_channel(invstd, input)
    if weight is not None:
        result = result * _per_channel(weight, input)
    return (result if bias is None else result + _per_channel(bias, input)).to(input.dtype)


def batch_norm_gather_stats_with_counts(
    input: Tensor,
    mean: Tensor,  # [W, C], a row a device
    invstd: Tensor,
    running_mean: Tensor | None,  # [C], written
    running_var: Tensor | None,
    momentum: float,
    eps: float,
    counts: Tensor,  # [W]
) -> tuple[Any, ...]:
    """`batch_norm_gather_stats_with_counts`: statistics of all devices, [C]."""
    share = _wide(counts).view(-1, 1)
    count = share.sum()
    means = _wide(mean)
    total = (share * means).sum(0) / count
    squares = (share * (_wide(invstd) ** -2 - eps + (means - total) ** 2)).sum(0)
    if running_mean is not None:
        running_mean.mul_(1 - momentum).add_(total * momentum)
    if running_var is not None:
        running_var.mul_(1 - momentum).add_(squares / (count - 1) * momentum)
    return total.to(mean.dtype), (squares / count + eps).rsqrt().to(mean.dtype)


def batch_norm_gather_stats(
    input: Tensor, mean: Tensor, invstd: Tensor, *rest: Any
) -> tuple[Any, ...]:
    """`batch_norm_gather_stats`: of devices that all have the same count, the last argument."""
    running_mean, running_var, momentum, eps, count = rest
    counts = mean.new_full((len(mean),), count)
    return batch_norm_gather_stats_with_counts(
        input, mean, invstd, running_mean, running_var, momentum, eps, counts
    )


def batch_norm_backward_reduce(
    grad_out: Tensor,  # [N, C, ...]
    input: Tensor,
    mean: Tensor,  # [C]
    invstd: Tensor,
    weight: Tensor | None,
    input_g: bool,
    weight_g: bool,
    bias_g: bool,
) -> tuple[Any, ...]:
    """`batch_norm_backward_reduce`: sums over this device, [C], and gradients, as asked for."""
    grad, dims = _wide(grad_out), _all_but_channels(input)
    of_all = grad.sum(dims)
    of_apart = (grad * (_wide(input) - _per_channel(mean, input))).sum(dims)
    of_weight = (of_apart * _wide(invstd)) if weight_g else None
    if of_weight is not None and weight is not None:
        of_weight = of_weight.to(weight.dtype)
    of_bias = of_all.to(of_all.dtype if weight is None else weight.dtype) if bias_g else None
    return (of_all, of_apart, of_weight, of_bias) if input_g else (None, None, of_weight, of_bias)


def batch_norm_backward_elemt(
    grad_out: Tensor,
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    sum_dy: Tensor,  # [C], over all devices
    sum_dy_xmu: Tensor,
    count: Tensor,  # [W]
) -> Tensor:
    """`batch_norm_backward_elemt`: the gradient of the input."""
    share = 1 / _wide(count).sum()
    apart = _wide(input) - _per_channel(mean, input)
    scale = _wide(invstd) if weight is None else _wide(invstd) * _wide(weight)
    steep = _per_channel(_wide(invstd) ** 2 * _wide(sum_dy_xmu) * share, input)
    level = _per_channel(_wide(sum_dy) * share, input)
    result = (_wide(grad_out) - level - apart * steep) * _per_channel(scale, input)
    return result.to(input.dtype)


def _typed(product: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A product whose result has the type that follows the tensors."""

    def twin(*args: Any, out: Tensor | None = None, **scalars: Any) -> Tensor:
        *factors, dtype = args
        result = product(*(factor.to(dtype) for factor in factors), **scalars)
        return result if out is None else out.copy_(result)

    return twin


def _widened(name: str) -> Callable[..., Tensor]:
    """A softmax of 16 bits whose result has 32: CUDA converts in the kernel, a CPU refuses to."""
    softmax = getattr(torch.ops.aten, name)

    def twin(values: Tensor, dim: int, is_widened: bool, *, out: Tensor | None = None) -> Tensor:
        made = softmax(values.float() if is_widened else values, dim, False)
        return made if out is None else out.copy_(made)

    return twin


def _narrowed(name: str) -> Callable[..., Tensor]:
    """Its gradient, which has the type of what was given."""
    gradient = getattr(torch.ops.aten, name)

    def twin(
        grad: Tensor,
        output: Tensor,
        dim: int,
        dtype: torch.dtype,
        *,
        grad_input: Tensor | None = None,
        out: Tensor | None = None,
    ) -> Tensor:
        made = gradient(grad, output, dim, grad.dtype).to(dtype)
        into = out if grad_input is None else grad_input
        return made if into is None else into.copy_(made)

    return twin


def convolution(*args: Any) -> Tensor:
    """Without cuDNN the result is contiguous, however the operands lie; not so on a CPU."""
    return torch.ops.aten.convolution(*args).contiguous()


def convolution_backward(*args: Any) -> tuple[Tensor | None, ...]:
    """Likewise its gradients."""
    made = torch.ops.aten.convolution_backward(*args)
    return tuple(None if one is None else one.contiguous() for one in made)


def _no_cudnn(*args: Any) -> bool:  # nor AMD's
    return False  # both are off on the virtual device


TWINS: dict[str, Callable[..., Any]] = {
    "_thnn_fused_lstm_cell": lstm_cell,
    "_thnn_fused_lstm_cell_backward_impl": lstm_cell_backward,
    "_thnn_fused_gru_cell": gru_cell,
    "_thnn_fused_gru_cell_backward": gru_cell_backward,
    "_fused_rms_norm_backward": rms_norm_backward,
    "batch_norm_stats": batch_norm_stats,
    "batch_norm_elemt": batch_norm_elemt,
    "batch_norm_gather_stats": batch_norm_gather_stats,
    "batch_norm_gather_stats_with_counts": batch_norm_gather_stats_with_counts,
    "batch_norm_backward_reduce": batch_norm_backward_reduce,
    "batch_norm_backward_elemt": batch_norm_backward_elemt,
    "convolution": convolution,
    "convolution_backward": convolution_backward,
    **{
        f"{name}{overload}": _widened(name)
        for name in ("_softmax", "_log_softmax")
        for overload in ("", ".out")
    },
    **{
        f"{name}{overload}": _narrowed(name)
        for name in ("_softmax_backward_data", "_log_softmax_backward_data")
        for overload in ("", ".out")
    },
    "_use_cudnn_ctc_loss": _no_cudnn,
    "_use_cudnn_ctc_loss.Tensor": _no_cudnn,
    "_use_miopen_ctc_loss": _no_cudnn,
    "_use_miopen_ctc_loss.Tensor": _no_cudnn,
    **{
        f"{name}.{overload}": _typed(getattr(torch, name))
        for name in ("mm", "bmm", "addmm", "baddbmm")
        for overload in ("dtype", "dtype_out")
    },
}
