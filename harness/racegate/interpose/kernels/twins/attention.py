"""Fused attention of CUDA, computed plainly: flash, memory-efficient and cuDNN's.

The definition is FlashAttention's (Dao et al., 2022): softmax(scale * Q K^T + bias) V by row, with
the logarithm of each row's sum of exponentials kept for the backward pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

from racegate.interpose.native import factories

Tensor = Any
_EFFICIENT_ROWS = 32  # the memory-efficient kernel rounds its kept sums up to as many


class NoTwinError(NotImplementedError):
    """An operator whose twin does not know what it was asked for; the text says what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyWindow:
    """Which keys a query sees. is_causal: none behind it; is_from_end: the last query is level with
    the last key, not the first with the first; left, right: how many keys around it, None for all
    """

    is_causal: bool = False
    is_from_end: bool = False
    left: int | None = None
    right: int | None = None

    def of(self, scores: Tensor) -> Tensor | None:  # [..., Lq, Lk]
        """What is hidden, [Lq, Lk] bool; None if nothing is."""
        right = 0 if self.is_causal else self.right
        if self.left is None and right is None:
            return None
        queries, keys = scores.shape[-2:]
        shift = keys - queries if self.is_from_end else 0
        at = factories.arange(queries, device=scores.device)[:, None] + shift
        key = factories.arange(keys, device=scores.device)
        hidden = factories.zeros((queries, keys), dtype=torch.bool, device=scores.device)
        if right is not None:
            hidden |= key > at + right
        return hidden if self.left is None else hidden | (key < at - self.left)


def _wide(tensor: Tensor) -> Tensor:
    return tensor if tensor.dtype is torch.float64 else tensor.float()


def _scores(
    query: Tensor, key: Tensor, bias: Tensor | None, mask: KeyWindow, scale: float
) -> Tensor:
    scores = _wide(query) @ _wide(key).transpose(-2, -1) * scale
    if bias is not None:
        scores = scores + _wide(bias)
    hidden = mask.of(scores)
    return scores if hidden is None else scores.masked_fill(hidden, -math.inf)


def _grouped(query: Tensor, tensor: Tensor) -> Tensor:
    """Keys or values for each query head: several of these may share one."""
    heads = query.shape[-3]
    return tensor.repeat_interleave(heads // tensor.shape[-3], -3)


def forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    mask: KeyWindow,
    scale: float | None,
) -> tuple[Tensor, Tensor]:
    """query [..., H, Lq, D], key and value [..., G, Lk, D]: output like query, and the logarithms
    of the sums [..., H, Lq] in float32.
    """
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = _scores(query, _grouped(query, key), bias, mask, scale)
    sums = scores.logsumexp(-1)
    weights = (scores - sums[..., None]).exp().nan_to_num(0.0)  # a row that sees nothing
    return (weights @ _wide(_grouped(query, value))).to(query.dtype), sums.float()


def backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    sums: Tensor,
    mask: KeyWindow,
    scale: float | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of query, key, value and of the scores, the last [..., H, Lq, Lk] in float32.
    sums [..., H, Lq]: as `forward` gives them
    """
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    keys, values, grad = _grouped(query, key), _wide(_grouped(query, value)), _wide(grad)
    scores = _scores(query, keys, bias, mask, scale)
    weights = (scores - sums[..., None]).exp().nan_to_num(0.0)
    wide = grad @ values.transpose(-2, -1)
    of_scores = weights * (wide - (weights * wide).sum(-1, keepdim=True))
    of_query = of_scores @ _wide(keys) * scale
    of_key = of_scores.transpose(-2, -1) @ _wide(query) * scale
    of_value = weights.transpose(-2, -1) @ grad
    return (
        of_query.to(query.dtype),
        _ungrouped(of_key, key).to(key.dtype),
        _ungrouped(of_value, value).to(value.dtype),
        of_scores,
    )


def _ungrouped(grad: Tensor, like: Tensor) -> Tensor:
    heads, shared = grad.shape[-3], like.shape[-3]
    return grad.unflatten(-3, (shared, heads // shared)).sum(-3)


def _no_dropout(probability: float) -> None:
    if probability:
        raise NoTwinError("with dropout: ask for the attention backend MATH, or for no dropout")


def _rows_of_heads(tensor: Tensor) -> Tensor:
    """[B, H, L, D] in the memory order in which the fused kernels leave it: [B, L, H, D]."""
    return tensor.transpose(1, 2).contiguous().transpose(1, 2)


def _seeds(like: Tensor, shape: tuple[int, ...]) -> Tensor:
    return factories.zeros(shape, dtype=torch.uint64, device=like.device)


def sdpa_flash(
    query: Tensor,  # [B, H, Lq, D]
    key: Tensor,  # [B, G, Lk, D]
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    """`_scaled_dot_product_flash_attention`."""
    _no_dropout(dropout_p)
    output, sums = forward(query, key, value, None, KeyWindow(is_causal=is_causal), scale)
    lengths = (None, None, query.shape[2], key.shape[2])
    seeds = (_seeds(query, (2,)), _seeds(query, ()))
    return (_rows_of_heads(output), sums, *lengths, *seeds, query.new_empty(0))


def sdpa_flash_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    *rest: Any,
    scale: float | None = None,
) -> tuple[Any, ...]:
    """`_scaled_dot_product_flash_attention_backward`."""
    mask = KeyWindow(is_causal=rest[5])
    return backward(grad_out, query, key, value, None, logsumexp, mask, scale)[:3]


def sdpa_efficient(
    query: Tensor,  # [B, H, Lq, D]
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,  # [B, H, Lq, Lk]
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    """`_scaled_dot_product_efficient_attention`."""
    _no_dropout(dropout_p)
    output, sums = forward(query, key, value, attn_bias, KeyWindow(is_causal=is_causal), scale)
    kept = _padded(sums) if compute_log_sumexp else sums[:, :, :0]
    return _rows_of_heads(output), kept, _seeds(query, ()), _seeds(query, ())


def _padded(sums: Tensor) -> Tensor:
    """Sums in as many rows as the memory-efficient kernel keeps; those behind are infinite."""
    missing = -sums.shape[-1] % _EFFICIENT_ROWS
    return torch.nn.functional.pad(sums, (0, missing), value=math.inf)


def sdpa_efficient_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    out: Tensor,
    logsumexp: Tensor,
    philox_seed: Tensor,
    philox_offset: Tensor,
    dropout_p: float,
    grad_input_mask: list[bool],
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    """`_scaled_dot_product_efficient_attention_backward`."""
    bias = attn_bias if attn_bias is not None and attn_bias.numel() else None
    sums, mask = logsumexp[:, :, : query.shape[2]], KeyWindow(is_causal=is_causal)
    *grads, of_scores = backward(grad_out, query, key, value, bias, sums, mask, scale)
    if bias is None or not grad_input_mask[3]:
        return (*grads, None)
    return (*grads, of_scores.sum_to_size(bias.shape).to(bias.dtype))


def sdpa_cudnn(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    """`_scaled_dot_product_cudnn_attention`."""
    _no_dropout(dropout_p)
    output, sums = forward(query, key, value, attn_bias, KeyWindow(is_causal=is_causal), scale)
    lengths = (None, None, query.shape[2], key.shape[2])
    seeds = (_seeds(query, ()), _seeds(query, ()))
    return (_rows_of_heads(output), sums[..., None], *lengths, *seeds, None)


def sdpa_cudnn_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    philox_seed: Tensor,
    philox_offset: Tensor,
    attn_bias: Tensor | None,
    *rest: Any,
    scale: float | None = None,
) -> tuple[Any, ...]:
    """`_scaled_dot_product_cudnn_attention_backward`."""
    bias = attn_bias if attn_bias is not None and attn_bias.numel() else None
    sums, mask = logsumexp.flatten(3).squeeze(-1), KeyWindow(is_causal=rest[5])
    return backward(grad_out, query, key, value, bias, sums, mask, scale)[:3]


def flash_forward(
    query: Tensor,  # [B, Lq, H, D], or [T, H, D] of several sequences
    key: Tensor,
    value: Tensor,
    cum_seq_q: Tensor | None,  # [S + 1] int32
    cum_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    return_debug_mask: bool,
    *,
    scale: float | None = None,
    window_size_left: int | None = None,
    window_size_right: int | None = None,
    **others: Any,
) -> tuple[Any, ...]:
    """`_flash_attention_forward`, dense and of sequences of several lengths."""
    _no_dropout(dropout_p)
    asked = sorted(name for name, value in others.items() if value is not None)
    if asked:
        raise NoTwinError(f"with {', '.join(asked)}")
    mask = _window(is_causal, window_size_left, window_size_right)
    output, sums = factories.empty_like(query), _empty_sums(query, cum_seq_q)
    for part in _parts(query, key, cum_seq_q, cum_seq_k):
        made = forward(*part.cut(query, key, value), None, mask, scale)
        output[part.queries] = made[0].transpose(-3, -2)
        part.sums_of(sums)[:] = made[1]
    return output, sums, _seeds(query, (2,)), _seeds(query, ()), query.new_empty(0)


def flash_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    cum_seq_q: Tensor | None,
    cum_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    rng_state: Tensor,
    unused: Tensor,
    *,
    scale: float | None = None,
    window_size_left: int | None = None,
    window_size_right: int | None = None,
) -> tuple[Any, ...]:
    """`_flash_attention_backward`."""
    mask = _window(is_causal, window_size_left, window_size_right)
    grads = [factories.zeros_like(tensor) for tensor in (query, key, value)]
    for part in _parts(query, key, cum_seq_q, cum_seq_k):
        cut = part.cut(query, key, value)
        grad = grad_out[part.queries].transpose(-3, -2)
        made = backward(grad, *cut, None, part.sums_of(logsumexp), mask, scale)
        for place, target, one in zip(part.places, grads, made[:3], strict=True):
            target[place] = one.transpose(-3, -2)
    return tuple(grads)


@dataclass(frozen=True, slots=True)
class _Part:
    """Sequences that are computed together. queries, keys: where they stand"""

    queries: Any
    keys: Any

    @property
    def places(self) -> tuple[Any, Any, Any]:
        return self.queries, self.keys, self.keys

    def cut(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Each with heads before rows."""
        keys, values = (one[self.keys].transpose(-3, -2) for one in (key, value))
        return query[self.queries].transpose(-3, -2), keys, values

    def sums_of(self, sums: Tensor) -> Tensor:
        return sums[..., self.queries] if isinstance(self.queries, slice) else sums


def _parts(
    query: Tensor, key: Tensor, cum_q: Tensor | None, cum_k: Tensor | None
) -> Iterator[_Part]:
    if cum_q is None or cum_k is None:
        yield _Part(..., ...)
        return
    if query.is_meta:  # shapes alone: lengths are values
        return
    for queries, keys in zip(_slices(cum_q), _slices(cum_k), strict=True):
        yield _Part(queries, keys)


def _slices(bounds: Tensor) -> list[slice]:
    return [slice(first, end) for first, end in pairwise(bounds.tolist())]


def _empty_sums(query: Tensor, cum_q: Tensor | None) -> Tensor:
    rows, heads = query.shape[-3], query.shape[-2]
    shape = (query.shape[0], heads, rows) if cum_q is None else (heads, rows)
    return factories.empty(shape, dtype=torch.float32, device=query.device)


def _window(is_causal: bool, left: int | None, right: int | None) -> KeyWindow:
    """A window of -1 has no end."""
    ends = (None if end is None or end < 0 else end for end in (left, right))
    left, right = ends
    return KeyWindow(is_causal=is_causal, is_from_end=True, left=left, right=right)


TWINS: dict[str, Callable[..., Any]] = {
    "_scaled_dot_product_flash_attention": sdpa_flash,
    "_scaled_dot_product_flash_attention_backward": sdpa_flash_backward,
    "_scaled_dot_product_efficient_attention": sdpa_efficient,
    "_scaled_dot_product_efficient_attention_backward": sdpa_efficient_backward,
    "_scaled_dot_product_cudnn_attention": sdpa_cudnn,
    "_scaled_dot_product_cudnn_attention_backward": sdpa_cudnn_backward,
    "_flash_attention_forward": flash_forward,
    "_flash_attention_backward": flash_backward,
}
