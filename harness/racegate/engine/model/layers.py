"""The model's layers as sequences of kernels, the same for every backend. DEFINITION section 2.

Arrays are NumPy on the virtual device and torch on CUDA; only slicing, reshaping and in-place
addition are used outside the kernels, which mean the same in both.
"""

from __future__ import annotations

from racegate_kernels.backend import Backend
from racegate_kernels.numerics import Array


def reset_counts(
    k: Backend,
    accepted: Array,  # [R] int32, written
    computed: Array,  # [R] int32, written
) -> None:
    """What the counts are before the first step."""
    k.fill(accepted, value=1)
    k.fill(computed, value=0)


def embed(k: Backend, input_ids: Array, hidden: Array, table: Array) -> None:
    """hidden [T, D] written = embedding of input_ids [T]."""
    hidden[...] = k.embedding(input_ids, table)


def mamba2_layer(
    k: Backend,
    hidden: Array,  # [T, D], read and written
    state: Array,  # [B, H, P, N], read and written
    window: Array,  # [B, HP + 2N, W - 1 + K], read and written
    state_table: Array,  # [R, 1 + K] int32
    query_start: Array,  # [R + 1] int32
    accepted: Array,  # [R] int32
    computed: Array,  # [R] int32
    is_decode: Array,  # [R] int32
    in_proj: Array,
    conv: Array,
    dt_bias: Array,
    a_log: Array,
    skip: Array,
    out_proj: Array,
) -> None:
    """hidden += mamba2(norm(hidden)); rolls state and window forward."""
    tokens = hidden.shape[0]
    _, heads, size, n = state.shape
    inner = heads * size
    u = k.linear(k.norm(hidden), in_proj)
    z, mixed, dt = u[:, :inner], u[:, inner : 2 * inner + 2 * n], u[:, 2 * inner + 2 * n :]
    block = state_table[:, 0]
    mixed = k.conv_update(mixed, conv, window, block, query_start, accepted, computed, is_decode)
    x = mixed[:, :inner].reshape(tokens, heads, size)
    b, c = mixed[:, inner : inner + n], mixed[:, inner + n :]
    row = (state_table, query_start, accepted, computed, is_decode)
    y = k.mamba2_update(x, b, c, dt, dt_bias, a_log, skip, state, *row)
    hidden += k.linear(k.gate(y.reshape(tokens, inner), z), out_proj)


def gated_delta_layer(
    k: Backend,
    hidden: Array,  # [T, D], read and written
    state: Array,  # [B, H, P, N], read and written
    window: Array,  # [B, 2HN + HP, W - 1 + K], read and written
    state_table: Array,  # [R, 1 + K] int32
    query_start: Array,  # [R + 1] int32
    accepted: Array,  # [R] int32
    computed: Array,  # [R] int32
    is_decode: Array,  # [R] int32
    in_proj: Array,
    conv: Array,
    dt_bias: Array,
    a_log: Array,
    out_proj: Array,
) -> None:
    """hidden += gated_delta(norm(hidden)); rolls state and window forward."""
    tokens = hidden.shape[0]
    _, heads, size, n = state.shape
    keys, inner = heads * n, heads * size
    channels = 2 * keys + inner
    u = k.linear(k.norm(hidden), in_proj)
    z = u[:, channels : channels + inner]
    b, g = u[:, channels + inner : channels + inner + heads], u[:, channels + inner + heads :]
    block = state_table[:, 0]
    mixed = k.conv_update(
        u[:, :channels], conv, window, block, query_start, accepted, computed, is_decode
    )
    query = mixed[:, :keys].reshape(tokens, heads, n)
    key = mixed[:, keys : 2 * keys].reshape(tokens, heads, n)
    value = mixed[:, 2 * keys :].reshape(tokens, heads, size)
    row = (state_table, query_start, accepted, computed, is_decode)
    o = k.gated_delta_update(query, key, value, b, g, dt_bias, a_log, state, *row)
    hidden += k.linear(k.gate(k.head_norm(o).reshape(tokens, inner), z), out_proj)


def attention_layer(
    k: Backend,
    hidden: Array,  # [T, D], read and written
    cache: Array,  # [B, S, 2HP], read and written
    block_table: Array,  # [R, M] int32
    query_start: Array,  # [R + 1] int32
    seq_lens: Array,  # [R] int32
    positions: Array,  # [T] int32
    slot_mapping: Array,  # [T] int32
    qkv_proj: Array,
    out_proj: Array,
    *,
    heads: int,
) -> None:
    """hidden += attention(norm(hidden)); writes the cache entries of the tokens first."""
    tokens = hidden.shape[0]
    inner = out_proj.shape[1]
    u = k.linear(k.norm(hidden), qkv_proj)
    query = k.rotary(u[:, :inner].reshape(tokens, heads, -1), positions)
    key = k.rotary(u[:, inner : 2 * inner].reshape(tokens, heads, -1), positions)
    # The projection's key part is not needed any more: with the encoded key in it, entry = [key,
    # value].
    u[:, inner : 2 * inner] = key.reshape(tokens, inner)
    k.cache_write(u[:, inner:], slot_mapping, cache)
    o = k.paged_attention(query, cache, block_table, query_start, seq_lens, positions)
    hidden += k.linear(k.attention_gate(o.reshape(tokens, inner)), out_proj)


def verify(
    k: Backend,
    hidden: Array,  # [T, D]
    logit_index: Array,  # [R, 1 + K] int32, -1 behind the row's last draft
    input_ids: Array,  # [T] int32
    positions: Array,  # [T] int32
    temperature: Array,  # [R] float32
    seed: Array,  # [R] uint32
    sampled: Array,  # [R, 1 + K] int32, written
    lm_head: Array,
) -> None:
    """Logits at the drafts' positions, and the tokens that stay."""
    logits = _logits(k, hidden, logit_index, lm_head)
    k.rejection_verify(logits, logit_index, input_ids, positions, temperature, seed, sampled)


def verify_masked(
    k: Backend,
    hidden: Array,
    mask: Array,  # [R, 1 + K, ceil(V / 32)] int32, a bit per token that may be drawn
    logit_index: Array,
    input_ids: Array,
    positions: Array,
    temperature: Array,
    seed: Array,
    sampled: Array,
    lm_head: Array,
) -> None:
    """verify, with forbidden tokens."""
    logits = _logits(k, hidden, logit_index, lm_head)
    k.mask_logits(logits, mask)
    k.rejection_verify(logits, logit_index, input_ids, positions, temperature, seed, sampled)


def _logits(k: Backend, hidden: Array, logit_index: Array, lm_head: Array) -> Array:
    """[R, 1 + K, V]; behind a row's last draft those of token 0."""
    return k.linear(k.norm(hidden[inside(logit_index, hidden)]), lm_head)


def inside(index: Array, values: Array) -> Array:
    """The index of a row that there is: one that is wrong gives a wrong value, on every backend. A
    GPU would not survive it.
    """
    return index.clip(0, len(values) - 1)
