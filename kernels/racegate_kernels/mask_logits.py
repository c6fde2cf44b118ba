"""Grammar mask: forbids tokens before one is drawn.

The mask is packed, one bit per token of the vocabulary, because the host sends it every step.
DEFINITION section 3.
"""

from __future__ import annotations

import numpy as np

from racegate_kernels._triton import tl, triton
from racegate_kernels.launch import BLOCK_ELEMENTS, assert_dense, block_of, cdiv, is_exact_tensor
from racegate_kernels.numerics import Array, is_exact

WORD_BITS = 32
T_WORD_BITS = tl.constexpr(WORD_BITS)


def mask_logits_eager(logits: Array, mask: Array) -> None:
    """Forbidden logits become 0 in exact, -inf in float.

    logits: [R, 1 + K, V] uint32 or float32, read and written
    mask: [R, 1 + K, ceil(V / 32)] int32, read; bit v % 32 of word v // 32 allows token v, the top
        bit included, with which a word is negative
    """
    token = np.arange(logits.shape[-1])
    # The shift repeats the sign, but only above the one bit that is looked at.
    allowed = (mask[..., token // WORD_BITS] >> token % WORD_BITS) & 1
    np.copyto(logits, 0 if is_exact(logits) else -np.inf, where=allowed == 0)


def mask_logits_triton(logits: Array, mask: Array) -> None:
    """The same on torch tensors."""
    assert_dense(logits, mask)
    rows, columns, vocab_size = logits.shape
    words = cdiv(vocab_size, WORD_BITS)
    assert mask.shape == (rows, columns, words), f"{tuple(mask.shape)=} {tuple(logits.shape)=}"
    block = block_of(words, most=BLOCK_ELEMENTS // WORD_BITS)
    _mask_logits_kernel[(rows * columns, cdiv(words, block))](
        logits,
        mask,
        VOCAB=vocab_size,
        WORDS=words,
        BLOCK=block,
        EXACT=is_exact_tensor(logits),
    )


@triton.jit
def _mask_logits_kernel(
    p_logits,  # [R, 1 + K, V], written
    p_mask,  # [R, 1 + K, ceil(V / 32)] int32, read
    VOCAB: tl.constexpr,
    WORDS: tl.constexpr,
    BLOCK: tl.constexpr,
    EXACT: tl.constexpr,
):
    """One program per distribution and block of words, a line of the tile for each word."""
    i_logit = tl.program_id(0).to(tl.int64)
    o_word = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK))[:, None]
    o_bit = tl.arange(0, T_WORD_BITS)[None, :]
    o_v = o_word * T_WORD_BITS + o_bit
    b_word = tl.load(p_mask + i_logit * WORDS + o_word, mask=o_word < WORDS, other=0)
    m_forbidden = ((b_word >> o_bit) & 1) == 0
    forbidden = 0 if EXACT else float("-inf")
    tl.store(p_logits + i_logit * VOCAB + o_v, forbidden, mask=m_forbidden & (o_v < VOCAB))
