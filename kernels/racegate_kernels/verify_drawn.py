"""Verification of drafts that were drawn from weights of their own: accepted by min(1, p / q), or
replaced by what max(0, p - q) draws, both by the one number of their position.

DEFINITION section 3, drawn drafts.
"""

from __future__ import annotations

import numpy as np

from racegate_kernels._triton import tl, triton
from racegate_kernels.argmax import argmax
from racegate_kernels.launch import (
    BLOCK_ELEMENTS,
    assert_dense,
    is_exact_tensor,
    power_of_two,
)
from racegate_kernels.numerics import GOLDEN, T_GOLDEN, Array, is_exact, mix, mix_eager
from racegate_kernels.poison import load_or_poison
from racegate_kernels.rejection_verify import (
    drafts_of_eager,
    draw,
    draw_tokens_eager,
    drawn_by_share_eager,
    drawn_by_weight_eager,
    emit_eager,
    emit_triton,
    exact_weights_eager,
    float_weights_eager,
    level,
    quantised,
    weight,
)
from racegate_kernels.rows import gather_eager

# Weights of drafts in exact are not above this; poison is.
WEIGHT_MAX = 16
T_WEIGHT_MAX = tl.constexpr(WEIGHT_MAX)


def verify_drawn_eager(
    logits: Array,
    logit_index: Array,
    input_ids: Array,
    positions: Array,
    temperature: Array,
    seed: Array,
    draft_weights: Array,
    draft_source: Array,
    sampled: Array,
) -> None:
    """Emitted tokens per row: a valid prefix, then -1.

    The first six and sampled as for rejection_verify; in exact V <= 128
    draft_weights: [R_max, K, V] int32 (exact) or float32, read; a draft without weight is verified
        as one that was not drawn
    draft_source: [R] int32, read; the row of draft_weights that holds a row's
    """
    token = np.where(logit_index >= 0, logit_index, 0)
    place = gather_eager(positions, token) + 1
    drawn = draw_tokens_eager(logits, temperature[:, None], seed[:, None], place)
    vocab_size = logits.shape[-1]
    drafts = drafts_of_eager(logit_index, input_ids)[:, :-1]
    is_drawn = (logit_index[:, 1:] >= 0) & (temperature > 0)[:, None]
    is_drawn &= (drafts >= 0) & (drafts < vocab_size)
    is_drawn &= ((draft_source >= 0) & (draft_source < len(draft_weights)))[:, None]
    rows, columns = np.nonzero(is_drawn)
    if len(rows):
        number = mix_eager(mix_eager(seed[rows]) + place[rows, columns].astype(np.uint32) * GOLDEN)
        against = draw_against_eager(
            logits[rows, columns],
            temperature[rows],
            number,
            drafts[rows, columns],
            draft_weights[draft_source[rows], columns],
        )
        drawn[rows, columns] = np.where(against >= 0, against, drawn[rows, columns])
    emit_eager(drawn, logit_index, input_ids, sampled)


def draw_against_eager(
    logits: Array, temperature: Array, number: Array, drafts: Array, draft_weights: Array
) -> Array:
    """The draft or what is recovered, [N] int32; -1 for a draft without weight.

    logits: [N, V] uint32 or float32; temperature: [N] float32; number: [N] uint32
    drafts: [N] int32, tokens; draft_weights: [N, V] int32 or float32
    """
    each = np.arange(len(drafts))
    if is_exact(logits):
        own = exact_weights_eager(logits, temperature)
        theirs = np.clip(draft_weights, 0, WEIGHT_MAX).astype(np.int64)
        a, b = own * theirs.sum(-1, keepdims=True), theirs * own.sum(-1, keepdims=True)
    else:
        a = float_weights_eager(logits, temperature)
        a, b = a / a.sum(-1, keepdims=True), draft_weights
    gain = np.maximum(a - b, 0)
    a_draft, b_draft = a[each, drafts], b[each, drafts]
    mixed = np.maximum(b_draft - a_draft, 0)[:, None] * gain
    mixed[each, drafts] = a_draft * gain.sum(-1)
    pick = drawn_by_weight_eager if is_exact(logits) else drawn_by_share_eager
    recovers = (a_draft < b_draft) & (mixed > 0).any(-1)
    mixed[~recovers] = 1
    token = np.where(recovers, pick(mixed, number), drafts)
    return np.where(b_draft > 0, token, -1).astype(np.int32)


def verify_drawn_triton(
    logits: Array,
    logit_index: Array,
    input_ids: Array,
    positions: Array,
    temperature: Array,
    seed: Array,
    draft_weights: Array,
    draft_source: Array,
    sampled: Array,
) -> None:
    """The same on torch tensors (seed: uint32 bits in int32)."""
    assert_dense(logits, logit_index, input_ids, positions, temperature, seed, sampled)
    assert_dense(draft_weights, draft_source)
    assert len(input_ids) == len(positions), f"{len(input_ids)=} {len(positions)=}"
    rows, columns, vocab_size = logits.shape
    assert vocab_size <= BLOCK_ELEMENTS, f"{vocab_size=}: a program holds all tokens at once"
    drawn = sampled.new_empty(sampled.shape)
    _draw_against_kernel[(rows, columns)](
        logits,
        logit_index,
        input_ids,
        positions,
        temperature,
        seed,
        draft_weights,
        draft_source,
        drawn,
        len(positions),
        len(draft_weights),
        VOCAB=vocab_size,
        BLOCK=power_of_two(vocab_size),
        EXACT=is_exact_tensor(logits),
    )
    emit_triton(drawn, logit_index, input_ids, sampled)


@triton.jit(do_not_specialize=["tokens_max", "rows_max"])
def _draw_against_kernel(
    p_logits,  # [R, 1 + K, V], read
    p_logit_index,  # [R, 1 + K] int32, read
    p_input_ids,  # [T_max] int32, read
    p_positions,  # [T_max] int32, read
    p_temperature,  # [R] float32, read
    p_seed,  # [R] int32, read
    p_draft_weights,  # [R_max, K, V] int32 or float32, read
    p_draft_source,  # [R] int32, read
    p_drawn,  # [R, 1 + K] int32, written
    tokens_max,
    rows_max,
    VOCAB: tl.constexpr,
    BLOCK: tl.constexpr,
    EXACT: tl.constexpr,
):
    i_row, i_place, columns = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    i_logit = i_row.to(tl.int64) * columns + i_place
    p_logits_row = p_logits + i_logit * VOCAB
    temperature = tl.load(p_temperature + i_row)
    if temperature > 0:
        i_token = tl.maximum(tl.load(p_logit_index + i_logit), 0)
        place = load_or_poison(p_positions, i_token, tokens_max) + 1
        seed = tl.load(p_seed + i_row).to(tl.uint32, bitcast=True)
        number = mix(mix(seed) + place.to(tl.uint32, bitcast=True) * T_GOLDEN)
        token = draw(p_logits_row, temperature, number, VOCAB, BLOCK, EXACT)
        m_behind = i_place + 1 < columns
        has_draft = tl.load(p_logit_index + i_logit + 1, mask=m_behind, other=-1) >= 0
        draft = tl.load(p_input_ids + tl.minimum(i_token + 1, tokens_max - 1))
        source = tl.load(p_draft_source + i_row)
        is_drawn = has_draft & (draft >= 0) & (draft < VOCAB) & (source >= 0) & (source < rows_max)
        if is_drawn:
            i_weights = source.to(tl.int64) * (columns - 1) + i_place
            p_weights_row = p_draft_weights + i_weights * VOCAB
            against = _draw_against(
                p_logits_row, p_weights_row, draft, temperature, number, VOCAB, BLOCK, EXACT
            )
            token = tl.where(against >= 0, against, token)
    else:
        token = argmax(p_logits_row, VOCAB, BLOCK, EXACT)
    tl.store(p_drawn + i_logit, token)


@triton.jit
def _draw_against(
    p_logits_row,
    p_weights_row,
    draft,
    temperature,
    number,
    VOCAB: tl.constexpr,
    BLOCK: tl.constexpr,
    EXACT: tl.constexpr,
):
    """The draft, what is recovered, or -1 if the draft has no weight."""
    o_v = tl.arange(0, BLOCK)
    b_a, b_b = _weighed(p_logits_row, p_weights_row, o_v, temperature, VOCAB, EXACT)
    b_gain = tl.maximum(b_a - b_b, 0)
    a_draft = tl.sum(tl.where(o_v == draft, b_a, 0), 0)
    b_draft = tl.sum(tl.where(o_v == draft, b_b, 0), 0)
    b_mixed = (b_draft - a_draft) * b_gain
    b_mixed = tl.where(o_v == draft, a_draft * tl.sum(b_gain, 0), b_mixed)
    total = tl.sum(b_mixed, 0)
    b_share = tl.cumsum(b_mixed, 0)
    if EXACT:
        high, low = total.to(tl.uint64) >> 32, total.to(tl.uint64) & 0xFFFFFFFF
        number = number.to(tl.uint64)
        mark = (number * high + ((number * low) >> 32)).to(tl.int64)
    else:
        mark = number.to(tl.float32) * 2.0**-32
        b_share = b_share / tl.where(total > 0, total, 1.0)
    token = tl.min(tl.where((b_share > mark) & (b_mixed > 0), o_v, VOCAB), 0)
    last = tl.max(tl.where(b_mixed > 0, o_v, 0), 0)
    token = tl.where((a_draft < b_draft) & (total > 0), tl.minimum(token, last), draft)
    return tl.where(b_draft > 0, token, -1)


@triton.jit
def _weighed(
    p_logits_row, p_weights_row, o_v, temperature, VOCAB: tl.constexpr, EXACT: tl.constexpr
):
    """a and b of every token, of equal sums; 0 behind the vocabulary."""
    heat = quantised(temperature) if EXACT else temperature
    top = tl.max(level(p_logits_row, o_v, heat, VOCAB, EXACT), 0)
    b_a = weight(p_logits_row, o_v, heat, top, VOCAB, EXACT)
    b_b = tl.load(p_weights_row + o_v, mask=o_v < VOCAB, other=0)
    if EXACT:
        b_b = tl.minimum(tl.maximum(b_b, 0), T_WEIGHT_MAX).to(tl.int64)
        b_a = b_a.to(tl.int64)
        own, theirs = tl.sum(b_a, 0), tl.sum(b_b, 0)
        b_a, b_b = b_a * theirs, b_b * own
    else:
        b_a = b_a / tl.sum(b_a, 0)
    return b_a, b_b
