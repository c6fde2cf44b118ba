"""Greedy choice of a token."""

from __future__ import annotations

import numpy as np

from racegate_kernels._triton import tl, triton
from racegate_kernels.launch import BLOCK_ELEMENTS, assert_row_major, block_of, is_exact_tensor
from racegate_kernels.numerics import Array, order_key, widen

T_KEY_MIN = tl.constexpr(-(2**31))


def argmax_eager(logits: Array) -> Array:
    """The index of the highest logit of each row, the lowest among equals.

    logits: [R, V] uint32 or float32, read
    returns [R] int32
    """
    return logits.argmax(axis=-1).astype(np.int32)


def argmax_triton(logits: Array) -> Array:
    """The same on torch tensors."""
    import torch

    assert_row_major(logits)
    rows, vocab_size = logits.shape
    best = logits.new_empty((rows,), dtype=torch.int32)
    _argmax_kernel[(rows,)](
        logits,
        best,
        logits.stride(0),
        VOCAB=vocab_size,
        BLOCK=block_of(vocab_size, most=BLOCK_ELEMENTS),
        EXACT=is_exact_tensor(logits),
    )
    return best


@triton.jit
def _argmax_kernel(
    p_logits,  # [R, V], read
    p_best,  # [R] int32, written
    stride_logits,
    VOCAB: tl.constexpr,
    BLOCK: tl.constexpr,
    EXACT: tl.constexpr,
):
    i_row = tl.program_id(0).to(tl.int64)
    tl.store(p_best + i_row, argmax(p_logits + i_row * stride_logits, VOCAB, BLOCK, EXACT))


@triton.jit
def argmax(p_logits_row, VOCAB: tl.constexpr, BLOCK: tl.constexpr, EXACT: tl.constexpr):
    """The lowest index of the highest of VOCAB logits, as int32."""
    best_key = tl.full([], T_KEY_MIN, tl.int32)
    best = tl.full([], 0, tl.int32)
    for i_v in range(0, VOCAB, BLOCK):
        o_v = i_v + tl.arange(0, BLOCK)
        b_logits = widen(tl.load(p_logits_row + o_v, mask=o_v < VOCAB, other=0), EXACT)
        b_key = tl.where(o_v < VOCAB, order_key(b_logits, EXACT), T_KEY_MIN)
        key, index = tl.max(b_key, 0, return_indices=True, return_indices_tie_break_left=True)
        best = tl.where(key > best_key, i_v + index, best)
        best_key = tl.maximum(best_key, key)
    return best
