"""Verification of drafts: draw a token at every position, keep the agreeing prefix.

DEFINITION section 3.
"""

from __future__ import annotations

import numpy as np

from racegate_kernels._triton import tl, triton
from racegate_kernels.argmax import argmax
from racegate_kernels.launch import BLOCK_ELEMENTS, assert_dense, block_of, cdiv, is_exact_tensor
from racegate_kernels.numerics import GOLDEN, T_GOLDEN, Array, is_exact, mix, mix_eager, widen
from racegate_kernels.poison import load_or_poison
from racegate_kernels.rows import gather_eager

BLOCK_R = 64


def rejection_verify_eager(
    logits: Array,
    logit_index: Array,
    input_ids: Array,
    positions: Array,
    temperature: Array,
    seed: Array,
    sampled: Array,
) -> None:
    """Emitted tokens per row: a valid prefix, then -1.

    logits: [R, 1 + K, V] uint32 or float32, read; a float logit of -inf is never drawn as long as
        one of its distribution is finite
    logit_index: [R, 1 + K] int32, read; token index of each logit row, -1 behind the last draft
    input_ids, positions: [T_max] int32, read; logit row t verifies the input behind logit_index
    temperature: [R] float32, read; 0 is greedy
    seed: [R] uint32, read
    sampled: [R, 1 + K] int32, written
    """
    used = logit_index >= 0
    token = np.where(used, logit_index, 0)
    place = gather_eager(positions, token) + 1
    drawn = draw_tokens_eager(logits, temperature[:, None], seed[:, None], place)
    emit_eager(drawn, logit_index, input_ids, sampled)


def emit_eager(drawn: Array, logit_index: Array, input_ids: Array, sampled: Array) -> None:
    """Of the tokens drawn, those up to the first that differs from its draft.

    drawn, logit_index: [R, 1 + K] int32; input_ids: [T_max] int32
    sampled: [R, 1 + K] int32, written
    """
    emitted = logit_index >= 0
    has_draft = np.zeros_like(emitted)
    has_draft[:, :-1] = emitted[:, 1:]
    goes_on = has_draft & (drawn == drafts_of_eager(logit_index, input_ids))
    emitted[:, 1:] &= np.logical_and.accumulate(goes_on[:, :-1], axis=1)
    sampled[...] = np.where(emitted, drawn, -1)


def drafts_of_eager(logit_index: Array, input_ids: Array) -> Array:
    """[R, 1 + K] int32: the input behind each logit row; the last one's is another row's.

    logit_index: [R, 1 + K] int32; input_ids: [T_max] int32
    """
    behind = np.minimum(np.maximum(logit_index, 0) + 1, len(input_ids) - 1)
    drafts: Array = input_ids[behind]
    return drafts


def draw_tokens_eager(logits: Array, temperature: Array, seed: Array, positions: Array) -> Array:
    """The token each distribution draws at its position, one counter-based number each.

    logits: [..., V] uint32 or float32; positions: [...] int32
    temperature (float32), seed (uint32): broadcast to [...]
    returns [...] int32
    """
    greedy = logits.argmax(axis=-1).astype(np.int32)
    if not (temperature > 0).any():
        return greedy
    number = mix_eager(mix_eager(seed) + positions.astype(np.uint32) * GOLDEN)
    heat = np.broadcast_to(temperature, positions.shape)
    random = (
        _draw_exact(logits, heat, number) if is_exact(logits) else _draw_float(logits, heat, number)
    )
    return np.where(heat > 0, random, greedy)


def _draw_exact(logits: Array, temperature: Array, number: Array) -> Array:
    """The tokens that integer weights and these numbers draw, [...] int32.

    logits: [..., V] uint32; temperature: [...] float32, number: [...] uint32
    """
    return drawn_by_weight_eager(exact_weights_eager(logits, temperature), number)


def exact_weights_eager(logits: Array, temperature: Array) -> Array:
    """What each token weighs in exact, int64 [..., V].

    logits: [..., V] uint32; temperature: [...] float32
    """
    level = (logits >> 16).astype(np.int64)
    quarter = np.maximum(np.rint(256.0 * temperature).astype(np.int64), 1)
    below = level.max(axis=-1, keepdims=True) - level
    weight: Array = np.int64(65536) >> np.minimum(below // (8 * quarter)[..., None], 31)
    return weight


def drawn_by_weight_eager(weight: Array, number: Array) -> Array:
    """The first token whose cumulated weight exceeds the number's part of all, [...] int32.

    weight: [..., V] int64, of a sum below 2^63; number: [...] uint32
    """
    total = np.cumsum(weight, axis=-1)
    high, low = np.divmod(total[..., -1].astype(np.uint64), np.uint64(1 << 32))
    number = number.astype(np.uint64)
    mark = number * high + (number * low >> np.uint64(32))
    return (total <= mark[..., None].astype(np.int64)).sum(axis=-1).astype(np.int32)


def _draw_float(logits: Array, temperature: Array, number: Array) -> Array:
    """The tokens that softmax and these numbers draw, [...] int32.

    logits: [..., V] float32; temperature: [...] float32, number: [...] uint32
    """
    return drawn_by_share_eager(float_weights_eager(logits, temperature), number)


def float_weights_eager(logits: Array, temperature: Array) -> Array:
    """What each token weighs in float, at most 1, float32 [..., V].

    logits: [..., V] float32; temperature: [...] float32
    """
    scaled = logits / np.where(temperature > 0, temperature, 1).astype(np.float32)[..., None]
    weight: Array = np.exp(scaled - scaled.max(axis=-1, keepdims=True))
    return weight


def drawn_by_share_eager(weight: Array, number: Array) -> Array:
    """The first token whose cumulated share exceeds the number's, [...] int32.

    weight: [..., V] float32; number: [...] uint32
    """
    share = np.cumsum(weight, axis=-1) / weight.sum(axis=-1, keepdims=True)
    mark = (number.astype(np.float64) / 2.0**32).astype(np.float32)
    chosen = (share <= mark[..., None]).sum(axis=-1)
    # Rounded, the last share may not exceed the mark; what weighs nothing is not drawn even then.
    last = weight.shape[-1] - 1 - (weight[..., ::-1] > 0).argmax(axis=-1)
    return np.minimum(chosen, last).astype(np.int32)


def rejection_verify_triton(
    logits: Array,
    logit_index: Array,
    input_ids: Array,
    positions: Array,
    temperature: Array,
    seed: Array,
    sampled: Array,
) -> None:
    """The same on torch tensors (seed: uint32 bits in int32)."""
    assert_dense(logits, logit_index, input_ids, positions, temperature, seed, sampled)
    assert len(input_ids) == len(positions), f"{len(input_ids)=} {len(positions)=}"
    rows, columns, vocab_size = logits.shape
    drawn = sampled.new_empty(sampled.shape)
    _draw_kernel[(rows, columns)](
        logits,
        logit_index,
        positions,
        temperature,
        seed,
        drawn,
        len(positions),
        VOCAB=vocab_size,
        BLOCK=block_of(vocab_size, most=BLOCK_ELEMENTS),
        EXACT=is_exact_tensor(logits),
    )
    emit_triton(drawn, logit_index, input_ids, sampled)


def emit_triton(drawn: Array, logit_index: Array, input_ids: Array, sampled: Array) -> None:
    """`emit_eager` on torch tensors."""
    rows, columns = drawn.shape
    emit_kernel[(cdiv(rows, BLOCK_R),)](
        drawn,
        logit_index,
        input_ids,
        sampled,
        rows,
        len(input_ids),
        COLUMNS=columns,
        BLOCK_R=BLOCK_R,
        BLOCK_K=block_of(columns),
    )


@triton.jit(do_not_specialize=["tokens_max"])
def _draw_kernel(
    p_logits,  # [R, 1 + K, V], read
    p_logit_index,  # [R, 1 + K] int32, read
    p_positions,  # [T_max] int32, read
    p_temperature,  # [R] float32, read
    p_seed,  # [R] int32, read
    p_drawn,  # [R, 1 + K] int32, written
    tokens_max,
    VOCAB: tl.constexpr,
    BLOCK: tl.constexpr,
    EXACT: tl.constexpr,
):
    i_row = tl.program_id(0)
    i_logit = i_row.to(tl.int64) * tl.num_programs(1) + tl.program_id(1)
    p_logits_row = p_logits + i_logit * VOCAB
    temperature = tl.load(p_temperature + i_row)
    if temperature > 0:
        i_token = tl.maximum(tl.load(p_logit_index + i_logit), 0)
        place = load_or_poison(p_positions, i_token, tokens_max) + 1
        seed = tl.load(p_seed + i_row).to(tl.uint32, bitcast=True)
        number = mix(mix(seed) + place.to(tl.uint32, bitcast=True) * T_GOLDEN)
        token = draw(p_logits_row, temperature, number, VOCAB, BLOCK, EXACT)
    else:
        token = argmax(p_logits_row, VOCAB, BLOCK, EXACT)
    tl.store(p_drawn + i_logit, token)


@triton.jit
def draw(
    p_logits_row, temperature, number, VOCAB: tl.constexpr, BLOCK: tl.constexpr, EXACT: tl.constexpr
):
    """The token that a uint32 number draws by inverse distribution function.

    The first with a weight whose share exceeds the mark, or, when rounded shares leave none, the
    last with a weight. A scan may round the share of a token without a weight differently from its
    neighbour's: counting the shares up to the mark could end on such a token.
    """
    if EXACT:
        heat = quantised(temperature)
        top = tl.full([], 0, tl.int32)
        total = tl.full([], 0, tl.int64)
    else:
        heat = temperature
        top = tl.full([], float("-inf"), tl.float32)
        total = tl.full([], 0, tl.float32)
    for i_v in range(0, VOCAB, BLOCK):
        o_v = i_v + tl.arange(0, BLOCK)
        top = tl.maximum(top, tl.max(level(p_logits_row, o_v, heat, VOCAB, EXACT), 0))
    cumulated = total
    for i_v in range(0, VOCAB, BLOCK):
        o_v = i_v + tl.arange(0, BLOCK)
        b_weight = weight(p_logits_row, o_v, heat, top, VOCAB, EXACT)
        total += tl.sum(b_weight, 0).to(total.dtype)
    if EXACT:
        mark = ((number.to(tl.uint64) * total.to(tl.uint64)) >> 32).to(tl.int64)
    else:
        mark = number.to(tl.float32) * 2.0**-32
    token = tl.full([], VOCAB, tl.int32)
    last = tl.full([], 0, tl.int32)
    for i_v in range(0, VOCAB, BLOCK):
        o_v = i_v + tl.arange(0, BLOCK)
        b_weight = weight(p_logits_row, o_v, heat, top, VOCAB, EXACT)
        b_share = cumulated + tl.cumsum(b_weight, 0).to(total.dtype)
        cumulated += tl.sum(b_weight, 0).to(total.dtype)
        if not EXACT:
            b_share = b_share / total
        token = tl.minimum(
            token, tl.min(tl.where((b_share > mark) & (b_weight > 0), o_v, VOCAB), 0)
        )
        last = tl.maximum(last, tl.max(tl.where(b_weight > 0, o_v, 0), 0))
    # A total that is no number (poison among the logits) draws token 0, as in the twin.
    return tl.where(total == total, tl.minimum(token, last), 0)


@triton.jit
def quantised(temperature):
    """256 times the temperature, rounded half to even as by np.rint, at least 1, as int32.

    From 8192 on all levels weigh the same, so the upper bound changes nothing.
    """
    scaled = tl.minimum(256.0 * temperature, 8192.0)
    below = tl.floor(scaled)
    rest = scaled - below
    whole = below.to(tl.int32)
    up = (rest > 0.5) | ((rest == 0.5) & ((whole & 1) == 1))
    return tl.maximum(whole + up.to(tl.int32), 1)


@triton.jit
def level(p_logits_row, o_v, heat, VOCAB: tl.constexpr, EXACT: tl.constexpr):
    """What is compared: the upper half of an exact logit, a float logit over the temperature."""
    b_logits = widen(tl.load(p_logits_row + o_v, mask=o_v < VOCAB, other=0), EXACT)
    if EXACT:
        b_level = (b_logits >> 16).to(tl.int32)
    else:
        b_level = tl.where(o_v < VOCAB, b_logits / heat, float("-inf"))
    return b_level


@triton.jit
def weight(p_logits_row, o_v, heat, top, VOCAB: tl.constexpr, EXACT: tl.constexpr):
    """The weight of each token; 0 behind the vocabulary."""
    b_level = level(p_logits_row, o_v, heat, VOCAB, EXACT)
    if EXACT:
        b_halvings = tl.minimum((top - b_level) // (8 * heat), 31)
        b_weight = tl.where(o_v < VOCAB, 65536 >> b_halvings, 0)
    else:
        b_weight = tl.exp(b_level - top)
    return b_weight


@triton.jit(do_not_specialize=["rows", "tokens_max"])
def emit_kernel(
    p_drawn,  # [R, 1 + K] int32, read
    p_logit_index,  # [R, 1 + K] int32, read
    p_input_ids,  # [T_max] int32, read
    p_sampled,  # [R, 1 + K] int32, written
    rows,
    tokens_max,
    COLUMNS: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    o_row = (tl.program_id(0).to(tl.int64) * BLOCK_R + tl.arange(0, BLOCK_R))[:, None]
    o_k = tl.arange(0, BLOCK_K)[None, :]
    o = o_row * COLUMNS + o_k
    m = (o_row < rows) & (o_k < COLUMNS)
    b_index = tl.load(p_logit_index + o, mask=m, other=-1)
    b_behind = tl.load(p_logit_index + o + 1, mask=m & (o_k + 1 < COLUMNS), other=-1)
    b_drawn = tl.load(p_drawn + o, mask=m, other=-1)
    b_at = tl.minimum(tl.maximum(b_index, 0) + 1, tokens_max - 1)
    b_draft = tl.load(p_input_ids + b_at, mask=m, other=-1)
    b_stops = ((b_behind < 0) | (b_drawn != b_draft)).to(tl.int32)
    # A token is emitted if nothing before it stopped: an exclusive running sum.
    b_stops_before = tl.cumsum(b_stops, 1) - b_stops
    m_emitted = (b_index >= 0) & (b_stops_before == 0)
    tl.store(p_sampled + o, tl.where(m_emitted, b_drawn, -1), mask=m)
