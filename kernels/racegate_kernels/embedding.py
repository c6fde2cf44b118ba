"""Embedding look-up."""

from __future__ import annotations

import numpy as np

from racegate_kernels._triton import tl, triton
from racegate_kernels.launch import assert_dense, block_of, cdiv, is_exact_tensor
from racegate_kernels.numerics import Array, widen
from racegate_kernels.poison import poison_of, poisoned


def embedding_eager(token_ids: Array, embed: Array) -> Array:
    """Rows of the embedding; an id outside the vocabulary gives a poison row.

    token_ids: [T] int32, read; tokens behind the last row like any other
    embed: [V, D] uint32 or float32, read
    returns [T, D]
    """
    inside = (token_ids >= 0) & (token_ids < embed.shape[0])
    if inside.all():
        return embed[token_ids]
    rows = embed[np.where(inside, token_ids, 0)]
    rows[~inside] = poison_of(embed.dtype)
    return rows


def embedding_triton(token_ids: Array, embed: Array) -> Array:
    """The same on torch tensors."""
    assert_dense(token_ids, embed)
    tokens, (vocab_size, width) = len(token_ids), embed.shape
    rows = embed.new_empty((tokens, width))
    block = block_of(width, most=1024)
    _embedding_kernel[(tokens, cdiv(width, block))](
        token_ids, embed, rows, vocab_size, WIDTH=width, BLOCK=block, EXACT=is_exact_tensor(embed)
    )
    return rows


@triton.jit
def _embedding_kernel(
    p_token_ids,  # [T] int32, read
    p_embed,  # [V, D], read
    p_rows,  # [T, D], written
    vocab_size,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    EXACT: tl.constexpr,
):
    i_t = tl.program_id(0).to(tl.int64)
    o_d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    m_d = o_d < WIDTH
    i_token = tl.load(p_token_ids + i_t).to(tl.int64)
    m_inside = (i_token >= 0) & (i_token < vocab_size)
    b_row = tl.load(p_embed + i_token * WIDTH + o_d, mask=tl.where(m_inside, m_d, False), other=0)
    b_row = poisoned(widen(b_row, EXACT), m_inside, EXACT)
    tl.store(p_rows + i_t * WIDTH + o_d, b_row, mask=m_d)
