"""Drafts drawn from weights of their own, which are kept for their verification.

DEFINITION section 4, mtp.
"""

from __future__ import annotations

import numpy as np

from racegate_kernels._triton import tl, triton
from racegate_kernels.argmax import argmax
from racegate_kernels.launch import BLOCK_ELEMENTS, assert_dense, is_exact_tensor, power_of_two
from racegate_kernels.numerics import (
    GOLDEN,
    POSITION,
    T_GOLDEN,
    T_POSITION,
    Array,
    is_exact,
    mix,
    mix_eager,
)
from racegate_kernels.rejection_verify import (
    drawn_by_share_eager,
    drawn_by_weight_eager,
    exact_weights_eager,
    float_weights_eager,
    level,
    quantised,
    weight,
)

# Of 17 bits of a weight, as many as keep the products of verification below 2^64.
COARSER = 12
T_COARSER = tl.constexpr(COARSER)


def draw_drafts_eager(
    logits: Array,
    temperature: Array,
    seed: Array,
    place: Array,
    drafts: Array,
    draft_weights: Array,
    *,
    column: int,
) -> None:
    """One draft per row, and what it was drawn from.

    logits: [R, V] uint32 or float32, read
    temperature: [R] float32, read; 0 is greedy, which has all the weight
    seed: [R] uint32, read
    place: [R] int32, read; the position that the draft is for; -1: token 0, without weight
    drafts: [R, K] int32; draft_weights: [R, K, V] int32 (exact) or float32; column written
    """
    greedy = logits.argmax(axis=-1).astype(np.int32)
    number = mix_eager(mix_eager(seed ^ np.uint32(POSITION)) + place.astype(np.uint32) * GOLDEN)
    if is_exact(logits):
        weights = exact_weights_eager(logits, temperature) >> COARSER
        drawn = drawn_by_weight_eager(weights, number)
    else:
        weights = float_weights_eager(logits, temperature)
        weights /= weights.sum(axis=-1, keepdims=True)
        drawn = drawn_by_share_eager(weights, number)
    is_drawn, has_place = temperature > 0, place >= 0
    is_greedy = np.arange(logits.shape[-1]) == greedy[:, None]
    weights = np.where(is_drawn[:, None], weights, is_greedy)
    draft_weights[:, column] = np.where(has_place[:, None], weights, 0)
    drafts[:, column] = np.where(is_drawn, drawn, greedy) * has_place


def draw_drafts_triton(
    logits: Array,
    temperature: Array,
    seed: Array,
    place: Array,
    drafts: Array,
    draft_weights: Array,
    *,
    column: int,
) -> None:
    """The same on torch tensors (seed: uint32 bits in int32)."""
    assert_dense(logits, temperature, seed, place, drafts, draft_weights)
    rows, vocab_size = logits.shape
    assert vocab_size <= BLOCK_ELEMENTS, f"{vocab_size=}: a program holds all tokens at once"
    _draw_drafts_kernel[(rows,)](
        logits,
        temperature,
        seed,
        place,
        drafts,
        draft_weights,
        column,
        DRAFTS=drafts.shape[1],
        VOCAB=vocab_size,
        BLOCK=power_of_two(vocab_size),
        EXACT=is_exact_tensor(logits),
    )


@triton.jit(do_not_specialize=["column"])
def _draw_drafts_kernel(
    p_logits,  # [R, V], read
    p_temperature,  # [R] float32, read
    p_seed,  # [R] int32, read
    p_place,  # [R] int32, read
    p_drafts,  # [R, K] int32, written
    p_draft_weights,  # [R, K, V] int32 or float32, written
    column,
    DRAFTS: tl.constexpr,
    VOCAB: tl.constexpr,
    BLOCK: tl.constexpr,
    EXACT: tl.constexpr,
):
    i_row = tl.program_id(0).to(tl.int64)
    p_row = p_logits + i_row * VOCAB
    o_draft = i_row * DRAFTS + column
    temperature = tl.load(p_temperature + i_row)
    place = tl.load(p_place + i_row)
    seed = tl.load(p_seed + i_row).to(tl.uint32, bitcast=True)
    number = mix(mix(seed ^ T_POSITION) + place.to(tl.uint32, bitcast=True) * T_GOLDEN)
    best = argmax(p_row, VOCAB, BLOCK, EXACT)
    warm = tl.where(temperature > 0, temperature, 1.0)
    heat = quantised(warm) if EXACT else warm
    o_v = tl.arange(0, BLOCK)
    top = tl.max(level(p_row, o_v, heat, VOCAB, EXACT), 0)
    b_weight = weight(p_row, o_v, heat, top, VOCAB, EXACT)
    if EXACT:
        b_weight = b_weight >> T_COARSER
        b_share = tl.cumsum(b_weight.to(tl.int64), 0)
        total = tl.sum(b_weight.to(tl.int64), 0)
        mark = ((number.to(tl.uint64) * total.to(tl.uint64)) >> 32).to(tl.int64)
    else:
        b_weight = b_weight / tl.sum(b_weight, 0)
        b_share = tl.cumsum(b_weight, 0)
        mark = number.to(tl.float32) * 2.0**-32
    token = tl.min(tl.where((b_share > mark) & (b_weight > 0), o_v, VOCAB), 0)
    token = tl.minimum(token, tl.max(tl.where(b_weight > 0, o_v, 0), 0))
    b_greedy = (o_v == best).to(b_weight.dtype)
    b_kept = tl.where(place >= 0, tl.where(temperature > 0, b_weight, b_greedy), 0)
    tl.store(p_draft_weights + o_draft * VOCAB + o_v, b_kept, mask=o_v < VOCAB)
    tl.store(p_drafts + o_draft, tl.where(place >= 0, tl.where(temperature > 0, token, best), 0))
