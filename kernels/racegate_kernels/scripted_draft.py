"""The scripted drafter: true continuations up to a target, but only if its own inputs are right.

DEFINITION section 4.
"""

from __future__ import annotations

import numpy as np

from racegate_kernels._triton import tl, triton
from racegate_kernels.cache_write import cache_write_eager
from racegate_kernels.launch import assert_dense, assert_row_major, block_of, cdiv
from racegate_kernels.numerics import (
    DIGEST,
    GOLDEN,
    POSITION,
    T_DIGEST,
    T_GOLDEN,
    T_POSITION,
    Array,
    mix,
    mix_eager,
    widen,
)
from racegate_kernels.paged_attention import gather_entries
from racegate_kernels.poison import load_or_poison, poisoned
from racegate_kernels.rows import gather_eager

BLOCK_T = 128
BLOCK_J = 128


def scripted_entries_eager(shifted_ids: Array, positions: Array) -> Array:
    """[T, 1] uint32: cache entries made of the token behind each position and the position.

    shifted_ids, positions: [T] int32
    """
    token = shifted_ids.astype(np.uint32) * GOLDEN
    return mix_eager(token + positions.astype(np.uint32) * POSITION + 1)[:, None]


def scripted_draft_eager(
    shifted_ids: Array,
    positions: Array,
    slot_mapping: Array,
    last_index: Array,
    next_token: Array,
    block_table: Array,
    request_index: Array,
    accept_target: Array,
    truth: Array,
    truth_digest: Array,
    cache: Array,
    drafts: Array,
    *,
    vocab_size: int,
) -> None:
    """Writes the drafter's cache entries of this step and proposes K drafts per row.

    shifted_ids, positions, slot_mapping: [T] int32, read; tokens behind the last row have slot -1
        and store nothing
    last_index, next_token, request_index, accept_target: [R] int32, read
    block_table: [R, M] int32, read
    truth: [Q, L] int32, read; the true tokens of each request
    truth_digest: [Q, L] uint32, read; the digest of a right cache up to each position
    cache: [B, S, 1] uint32, read and written
    drafts: [R, K] int32, written
    """
    cache_write_eager(scripted_entries_eager(shifted_ids, positions), slot_mapping, cache)
    place = gather_eager(positions, last_index)
    context = min(int(place.max(initial=-1)) + 1, block_table.shape[1] * cache.shape[1])
    entries = gather_entries(cache, block_table, max(context, 0))[..., 0]
    index = np.arange(entries.shape[1], dtype=np.uint32)
    terms = mix_eager(entries + index * DIGEST)
    digest = np.where(index <= place[:, None], terms, np.uint32(0)).sum(axis=1, dtype=np.uint32)
    request = np.clip(request_index, 0, len(truth) - 1)
    longest = truth.shape[1] - 1
    right = next_token == truth[request, np.clip(place + 1, 0, longest)]
    right &= digest == truth_digest[request, np.clip(place, 0, longest)]
    for i in range(drafts.shape[1]):
        true = truth[request, np.clip(place + 2 + i, 0, longest)]
        step = mix_eager(digest + np.uint32(i)) % np.uint32(vocab_size - 1)
        wrong = (true + 1 + step.astype(np.int32)) % vocab_size
        drafts[:, i] = np.where(right & (i < accept_target - 1), true, wrong)


def scripted_draft_triton(
    shifted_ids: Array,
    positions: Array,
    slot_mapping: Array,
    last_index: Array,
    next_token: Array,
    block_table: Array,
    request_index: Array,
    accept_target: Array,
    truth: Array,
    truth_digest: Array,
    cache: Array,
    drafts: Array,
    *,
    vocab_size: int,
) -> None:
    """The same on torch tensors (cache, truth_digest: uint32 bits in int32)."""
    vectors = (last_index, next_token, request_index, accept_target)
    assert_dense(shifted_ids, positions, slot_mapping, *vectors, truth, truth_digest, cache)
    assert_row_major(block_table, drafts)
    tokens, (blocks, block_size, _) = len(shifted_ids), cache.shape
    # Two kernels, because a row's digest needs entries that several programs write.
    _scripted_entries_kernel[(cdiv(tokens, BLOCK_T),)](
        shifted_ids,
        positions,
        slot_mapping,
        cache,
        tokens,
        block_size,
        blocks * block_size,
        BLOCK_T=BLOCK_T,
    )
    _scripted_draft_kernel[(len(last_index),)](
        positions,
        last_index,
        next_token,
        block_table,
        request_index,
        accept_target,
        truth,
        truth_digest,
        cache,
        drafts,
        block_table.stride(0),
        drafts.stride(0),
        tokens,
        blocks,
        block_table.shape[1] * block_size,
        *truth.shape,
        VOCAB=vocab_size,
        DRAFTS=drafts.shape[1],
        BLOCK_SIZE=block_size,
        BLOCK_J=BLOCK_J,
        BLOCK_K=block_of(drafts.shape[1]),
    )


@triton.jit(do_not_specialize=["tokens"])
def _scripted_entries_kernel(
    p_shifted_ids,  # [T] int32, read
    p_positions,  # [T] int32, read
    p_slot_mapping,  # [T] int32, read
    p_cache,  # [B, S, 1] int32, written
    tokens,
    first_slot,  # the first behind the null block
    slots,
    BLOCK_T: tl.constexpr,
):
    o_t = tl.program_id(0).to(tl.int64) * BLOCK_T + tl.arange(0, BLOCK_T)
    m_t = o_t < tokens
    b_token = widen(tl.load(p_shifted_ids + o_t, mask=m_t, other=0), EXACT=True)
    b_position = widen(tl.load(p_positions + o_t, mask=m_t, other=0), EXACT=True)
    b_slot = tl.load(p_slot_mapping + o_t, mask=m_t, other=-1).to(tl.int64)
    b_entry = mix(b_token * T_GOLDEN + b_position * T_POSITION + 1)
    tl.store(p_cache + b_slot, b_entry, mask=(b_slot >= first_slot) & (b_slot < slots))


@triton.jit(do_not_specialize=["tokens"])
def _scripted_draft_kernel(
    p_positions,  # [T] int32, read
    p_last_index,  # [R] int32, read
    p_next_token,  # [R] int32, read
    p_block_table,  # [R, M] int32, read
    p_request_index,  # [R] int32, read
    p_accept_target,  # [R] int32, read
    p_truth,  # [Q, L] int32, read
    p_truth_digest,  # [Q, L] int32, read
    p_cache,  # [B, S, 1] int32, read
    p_drafts,  # [R, K] int32, written
    stride_table,
    stride_drafts,
    tokens,
    blocks,
    context_max,  # M * S
    requests,
    truth_len,
    VOCAB: tl.constexpr,
    DRAFTS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    BLOCK_J: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    i_row = tl.program_id(0).to(tl.int64)
    i_last = tl.load(p_last_index + i_row)
    place = load_or_poison(p_positions, i_last, tokens)
    p_table_row = p_block_table + i_row * stride_table
    b_digest = tl.zeros([BLOCK_J], tl.uint32)
    i_first = i_last * 0
    seen = tl.minimum(place + 1, context_max)
    while i_first < seen:
        o_j = i_first + tl.arange(0, BLOCK_J)
        m_j = o_j < seen
        b_block = tl.load(p_table_row + o_j // BLOCK_SIZE, mask=m_j, other=0).to(tl.int64)
        m_inside = (b_block > 0) & (b_block < blocks)
        p_entry = p_cache + b_block * BLOCK_SIZE + o_j % BLOCK_SIZE
        b_entry = widen(tl.load(p_entry, mask=m_j & m_inside, other=0), EXACT=True)
        b_term = mix(poisoned(b_entry, m_inside, EXACT=True) + o_j.to(tl.uint32) * T_DIGEST)
        b_digest += tl.where(m_j, b_term, 0)
        i_first += BLOCK_J
    digest = tl.sum(b_digest, 0)

    i_request = tl.load(p_request_index + i_row)
    i_request = tl.minimum(tl.maximum(i_request, 0), requests - 1).to(tl.int64)
    p_truth_row = p_truth + i_request * truth_len
    longest = truth_len - 1
    i_place = tl.minimum(tl.maximum(place, 0), longest)
    i_next = tl.minimum(tl.maximum(place + 1, 0), longest)
    right_digest = tl.load(p_truth_digest + i_request * truth_len + i_place)
    right = tl.load(p_next_token + i_row) == tl.load(p_truth_row + i_next)
    right = right & (digest == widen(right_digest, EXACT=True))

    o_k = tl.arange(0, BLOCK_K)
    b_at = tl.minimum(tl.maximum(place + 2 + o_k, 0), longest)
    b_true = tl.load(p_truth_row + b_at)
    b_step = mix(digest + o_k.to(tl.uint32)) % tl.cast(VOCAB - 1, tl.uint32)
    b_wrong = (b_true + 1 + b_step.to(tl.int32)) % VOCAB
    m_true = tl.where(right, o_k < tl.load(p_accept_target + i_row) - 1, False)
    b_drafts = tl.where(m_true, b_true, b_wrong)
    tl.store(p_drafts + i_row * stride_drafts + o_k, b_drafts, mask=o_k < DRAFTS)
