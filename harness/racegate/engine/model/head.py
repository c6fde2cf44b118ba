"""What stands behind the layers: logits, and the tokens that are drawn and verified by them.
DEFINITION section 3.
"""

from __future__ import annotations

from typing import NamedTuple

from racegate_kernels.backend import Backend
from racegate_kernels.numerics import Array


class Drawing(NamedTuple):
    """What a token is drawn from beside the logits."""

    logit_index: Array  # [R, 1 + K] int32, -1 behind the row's last draft
    input_ids: Array  # [T] int32
    positions: Array  # [T] int32
    temperature: Array  # [R] float32
    seed: Array  # [R] uint32


class Drawn(NamedTuple):
    """What drafts were drawn from."""

    draft_weights: Array  # [R_max, K, V] int32 or float32, in rows of its own
    draft_source: Array  # [R] int32, each row's among them


class HeadWeights(NamedTuple):
    """Parameters behind the layers; shapes: model/weights."""

    lm_head: Array
    final_norm: Array | None = None


class LogitSource(NamedTuple):
    """What logits are made of, or the logits [R, 1 + K, V] that ranks have made together."""

    hidden: Array | None = None  # [T, D]
    lm_head: Array | None = None
    final_norm: Array | None = None
    logits: Array | None = None


def verify(
    kernels: Backend,
    target: LogitSource,
    drawing: Drawing,
    sampled: Array,  # [R, 1 + K] int32, written
) -> None:
    """Logits at the drafts' positions, and the tokens that stay."""
    logits = _logits(kernels, target, drawing.logit_index)
    kernels.rejection_verify(logits, *drawing, sampled)


def verify_masked(
    kernels: Backend,
    target: LogitSource,
    grammar_mask: Array,  # [R, 1 + K, ceil(V / 32)] int32, a bit per token that may be drawn
    drawing: Drawing,
    sampled: Array,  # [R, 1 + K] int32, written
) -> None:
    """verify, with forbidden tokens."""
    logits = _logits(kernels, target, drawing.logit_index)
    kernels.mask_logits(logits, grammar_mask)
    kernels.rejection_verify(logits, *drawing, sampled)


def verify_drawn(
    kernels: Backend,
    target: LogitSource,
    drawing: Drawing,
    drawn: Drawn,
    sampled: Array,  # [R, 1 + K] int32, written
) -> None:
    """verify, with drafts that have weights."""
    logits = _logits(kernels, target, drawing.logit_index)
    kernels.verify_drawn(logits, *drawing, *drawn, sampled)


def verify_drawn_masked(
    kernels: Backend,
    target: LogitSource,
    grammar_mask: Array,  # [R, 1 + K, ceil(V / 32)] int32, a bit per token that may be drawn
    drawing: Drawing,
    drawn: Drawn,
    sampled: Array,  # [R, 1 + K] int32, written
) -> None:
    """verify_drawn, with forbidden tokens."""
    logits = _logits(kernels, target, drawing.logit_index)
    kernels.mask_logits(logits, grammar_mask)
    kernels.verify_drawn(logits, *drawing, *drawn, sampled)


def _logits(kernels: Backend, target: LogitSource, logit_index: Array) -> Array:
    """[R, 1 + K, V], for the caller to change."""
    if target.logits is None:
        head = HeadWeights(target.lm_head, target.final_norm)
        return drawn_logits(kernels, target.hidden, logit_index, head)
    return target.logits


def drawn_logits(kernels: Backend, hidden: Array, logit_index: Array, head: HeadWeights) -> Array:
    """[R, 1 + K, V]; behind a row's last draft those of token 0."""
    return logits_of(kernels, hidden[inside(logit_index, hidden)], head)


def logits_of(kernels: Backend, hidden: Array, head: HeadWeights) -> Array:
    """[..., V] of hidden states [..., D]."""
    logits: Array = kernels.linear(kernels.norm(hidden, head.final_norm), head.lm_head)
    return logits


def inside(
    index: Array,  # int32
    values: Array,  # [n, ...]
) -> Array:
    """The index of a row that there is: one that is wrong gives a wrong value, on every backend. A
    GPU would not survive it.
    """
    return index.clip(0, len(values) - 1)
