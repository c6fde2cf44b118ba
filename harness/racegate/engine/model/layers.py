"""The model's layers as sequences of kernels, the same for every backend. DEFINITION section 2.

Arrays are NumPy on the virtual device and torch on CUDA; only slicing, reshaping and in-place
addition are used outside the kernels, which mean the same in both.
"""

from __future__ import annotations

from typing import NamedTuple

from racegate.scenario.settings import ModelSpec
from racegate_kernels.backend import Backend
from racegate_kernels.numerics import Array


class Residual(NamedTuple):
    """The residual stream; partial: where a rank's part of what a layer adds to it goes instead,
    if a layer is spread over several
    """

    hidden: Array  # [T, D], read, and written without partial
    partial: Array | None = None  # [T, D], written

    def add(self, values: Array) -> None:
        """values: [T, D], what a layer adds, or this rank's part of it"""
        hidden, partial = self
        if partial is None:
            hidden += values
        else:
            partial[...] = values


class RecurrentRows(NamedTuple):
    """By row, what says where a recurrent layer finds and keeps its states."""

    state_table: Array  # [R, 1 + K] int32
    query_start: Array  # [R + 1] int32
    accepted: Array  # [R] int32
    computed: Array  # [R] int32
    is_decode: Array  # [R] int32


class TokenRows(RecurrentRows):
    """Rows of cache mode all: state_table [R, 1 + N] int32 has the block of every token's state, or
    none, and in its last column that of the state a row starts from. Kernels that keep states take
    all rows for decoding ones: accepted is 1 + N, is_decode 1.
    """


class PagedRows(NamedTuple):
    """By row and by token, what says where an attention layer finds and keeps its entries.
    mrope_positions: with a model that turns by them
    common_prefix: tokens at the start of all rows that attention goes over once, if it does
    """

    block_table: Array  # [R, M] int32
    query_start: Array  # [R + 1] int32
    seq_lens: Array  # [R] int32
    positions: Array  # [T] int32
    slot_mapping: Array  # [T] int32
    mrope_positions: Array | None = None  # [T, 3] int32
    common_prefix: Array | None = None  # [1] int32


class AttentionShape(NamedTuple):
    """What a layer's arrays do not tell. section: rotary pairs by coordinate, none without those
    rotary_width: the elements of a head that turn
    """

    heads: int
    section: tuple[int, ...]
    rotary_width: int


def attention_shape(model: ModelSpec) -> AttentionShape:
    """Of every attention layer of a model."""
    return AttentionShape(model.heads, model.mrope_section, model.rotary_width)


class Mamba2Weights(NamedTuple):
    """Parameters of a Mamba2 layer; shapes: model/weights. None: a part that the model lacks."""

    in_proj: Array
    conv: Array
    dt_bias: Array
    a_log: Array
    skip: Array
    out_proj: Array
    norm: Array | None = None
    in_bias: Array | None = None
    conv_bias: Array | None = None
    gated_norm: Array | None = None
    out_bias: Array | None = None


class GatedDeltaWeights(NamedTuple):
    """Parameters of a gated-delta layer; shapes: model/weights."""

    in_proj: Array
    conv: Array
    dt_bias: Array
    a_log: Array
    out_proj: Array
    norm: Array | None = None
    in_bias: Array | None = None
    conv_bias: Array | None = None
    head_norm: Array | None = None
    out_bias: Array | None = None


class AttentionWeights(NamedTuple):
    """Parameters of an attention layer; shapes: model/weights."""

    qkv_proj: Array
    out_proj: Array
    norm: Array | None = None
    qkv_bias: Array | None = None
    q_norm: Array | None = None
    k_norm: Array | None = None
    out_bias: Array | None = None


class MlpWeights(NamedTuple):
    """Parameters of the gated MLP behind a layer; shapes: model/weights."""

    mlp_in: Array
    mlp_out: Array
    mlp_norm: Array | None = None


def reset_counts(
    kernels: Backend,
    accepted: Array,  # [R] int32, written
    computed: Array,  # [R] int32, written
) -> None:
    """What the counts are before the first step."""
    kernels.fill(accepted, value=1)
    kernels.fill(computed, value=0)


def embed(
    kernels: Backend,
    input_ids: Array,  # [T] int32
    hidden: Array,  # [T, D], written
    table: Array,  # [V, D]
) -> None:
    """hidden = the tokens' embeddings."""
    hidden[...] = kernels.embedding(input_ids, table)


def mamba2_layer(
    kernels: Backend,
    residual: Residual,
    state: Array,  # [B, H, P, N], read and written
    window: Array,  # [B, HP + 2GN, W - 1 + K], read and written
    rows: RecurrentRows,
    weights: Mamba2Weights,
) -> None:
    """hidden += mamba2(norm(hidden)); rolls state and window forward."""
    hidden = residual.hidden
    tokens = hidden.shape[0]
    _, heads, size, _ = state.shape
    inner, channels = heads * size, window.shape[1]
    shared = (channels - inner) // 2
    u = kernels.linear(kernels.norm(hidden, weights.norm), weights.in_proj, weights.in_bias)
    z, mixed, dt = u[:, :inner], u[:, inner : inner + channels], u[:, inner + channels :]
    mixed = _convolved(kernels, mixed, window, rows, weights)
    x = mixed[:, :inner].reshape(tokens, heads, size)
    b, c = mixed[:, inner : inner + shared], mixed[:, inner + shared :]
    y = kernels.mamba2_update(
        x, b, c, dt, weights.dt_bias, weights.a_log, weights.skip, state, *rows
    )
    o = kernels.gate(y.reshape(tokens, inner), z)
    if weights.gated_norm is not None:
        o = kernels.norm(o, weights.gated_norm, groups=shared // state.shape[3])
    residual.add(kernels.linear(o, weights.out_proj, weights.out_bias))


def gated_delta_layer(
    kernels: Backend,
    residual: Residual,
    state: Array,  # [B, H, P, N], read and written
    window: Array,  # [B, 2QN + HP, W - 1 + K], read and written
    rows: RecurrentRows,
    weights: GatedDeltaWeights,
) -> None:
    """hidden += gated_delta(norm(hidden)); rolls state and window forward."""
    hidden = residual.hidden
    tokens = hidden.shape[0]
    _, heads, size, n = state.shape
    inner, channels = heads * size, window.shape[1]
    keys = (channels - inner) // 2
    u = kernels.linear(kernels.norm(hidden, weights.norm), weights.in_proj, weights.in_bias)
    z = u[:, channels : channels + inner]
    b, g = u[:, channels + inner : channels + inner + heads], u[:, channels + inner + heads :]
    mixed = _convolved(kernels, u[:, :channels], window, rows, weights)
    query = mixed[:, :keys].reshape(tokens, keys // n, n)
    key = mixed[:, keys : 2 * keys].reshape(tokens, keys // n, n)
    value = mixed[:, 2 * keys :].reshape(tokens, heads, size)
    o = kernels.gated_delta_update(
        query, key, value, b, g, weights.dt_bias, weights.a_log, state, *rows
    )
    o = kernels.head_norm(o, weights.head_norm).reshape(tokens, inner)
    residual.add(kernels.linear(kernels.gate(o, z), weights.out_proj, weights.out_bias))


def mamba2_layer_by_token(
    kernels: Backend,
    residual: Residual,
    state: Array,  # [B, H, P, N], read and written
    window: Array,  # [B, HP + 2GN, W - 1], read and written
    rows: TokenRows,
    weights: Mamba2Weights,
) -> None:
    """mamba2_layer, in cache mode all."""
    mamba2_layer(kernels, residual, state, window, rows, weights)


def gated_delta_layer_by_token(
    kernels: Backend,
    residual: Residual,
    state: Array,  # [B, H, P, N], read and written
    window: Array,  # [B, 2QN + HP, W - 1], read and written
    rows: TokenRows,
    weights: GatedDeltaWeights,
) -> None:
    """gated_delta_layer, in cache mode all."""
    gated_delta_layer(kernels, residual, state, window, rows, weights)


def _convolved(
    kernels: Backend,
    x: Array,  # [T, C]
    window: Array,  # [B, C, W - 1 + K] or, by token, [B, C, W - 1], read and written
    rows: RecurrentRows,
    weights: Mamba2Weights | GatedDeltaWeights,
) -> Array:
    """[T, C]: the convolved inputs; windows are rolled forward, or kept by token."""
    weight, bias = weights.conv, weights.conv_bias
    convolved: Array
    if isinstance(rows, TokenRows):
        where = rows.state_table, rows.query_start, rows.computed
        convolved = kernels.conv_by_token(x, weight, window, *where, bias=bias)
    else:
        table = rows.state_table[:, 0]
        convolved = kernels.conv_update(x, weight, window, table, *rows[1:], bias=bias)
    return convolved


def attention_layer(
    kernels: Backend,
    residual: Residual,
    cache: Array,  # [B, S, 2GP], read and written; G key heads
    rows: PagedRows,
    weights: AttentionWeights,
    *,
    shape: AttentionShape,
) -> None:
    """hidden += attention(norm(hidden)); writes the cache entries of the tokens first."""
    hidden = residual.hidden
    tokens = hidden.shape[0]
    inner, entry = weights.out_proj.shape[1], cache.shape[2]
    size, keys = inner // shape.heads, entry // 2
    u = kernels.linear(kernels.norm(hidden, weights.norm), weights.qkv_proj, weights.qkv_bias)
    query = u[:, :inner].reshape(tokens, shape.heads, size)
    key = u[:, inner : inner + keys].reshape(tokens, keys // size, size)
    if weights.q_norm is not None:
        query, key = kernels.norm(query, weights.q_norm), kernels.norm(key, weights.k_norm)
    query, key = _turned(kernels, query, rows, shape), _turned(kernels, key, rows, shape)
    # The projection's key part is not needed any more: with the encoded key in it, entry = [key,
    # value].
    u[:, inner : inner + keys] = key.reshape(tokens, keys)
    kernels.cache_write(u[:, inner : inner + entry], rows.slot_mapping, cache)
    o = _attended(kernels, query, cache, rows).reshape(tokens, inner)
    gate = u[:, inner + entry :] if u.shape[1] > inner + entry else None
    o = kernels.attention_gate(o, gate)
    residual.add(kernels.linear(o, weights.out_proj, weights.out_bias))


def _attended(
    kernels: Backend,
    query: Array,  # [T, H, P]
    cache: Array,  # [B, S, 2GP]
    rows: PagedRows,
) -> Array:
    """[T, H, P]"""
    if rows.common_prefix is None:
        attended: Array = kernels.paged_attention(query, cache, *rows[:4])
    else:
        attended = kernels.cascade_attention(query, cache, *rows[:4], rows.common_prefix)
    return attended


def _turned(
    kernels: Backend,
    x: Array,  # [T, H, P]
    rows: PagedRows,
    shape: AttentionShape,
) -> Array:
    """[T, H, P]: x encoded with where its tokens stand."""
    if rows.mrope_positions is None:
        turned: Array = kernels.rotary(x, rows.positions, width=shape.rotary_width)
    else:
        turned = kernels.mrope(x, rows.mrope_positions, section=shape.section)
    return turned


def mlp_layer(
    kernels: Backend,
    residual: Residual,
    weights: MlpWeights,
) -> None:
    """hidden += mlp(norm(hidden))."""
    u = kernels.linear(kernels.norm(residual.hidden, weights.mlp_norm), weights.mlp_in)
    size = weights.mlp_out.shape[1]
    residual.add(kernels.linear(kernels.gate(u[:, size:], u[:, :size]), weights.mlp_out))
