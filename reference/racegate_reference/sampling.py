"""Sampling by inverse distribution function, and verification of drafts (DEFINITION section 3)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import accumulate

import msgspec
import numpy as np

from racegate_reference.numbers import GOLDEN, ROTATION, Array, mix_word, softmax


class Draw(msgspec.Struct, frozen=True):
    """A token and by how much it was decided.

    margin: for a greedy float decision the distance to the second highest logit, for a random one
    the distance of the uniform number to the nearest boundary of its interval; infinite in exact,
    and for a decision that the grammar leaves no choice.
    """

    token: int
    margin: float


def number_at(seed: int, position: int) -> int:
    """The 32-bit number that draws the token at a position of a request."""
    return mix_word(mix_word(seed) + position * GOLDEN)


def draft_number_at(seed: int, position: int) -> int:
    """The 32-bit number that draws the draft for a position of a request."""
    return number_at(seed ^ ROTATION, position)


def constrain(logits: Array, *, previous: int, modulus: int) -> Array:
    """The logits [V], uint32 or float64, with the lowest value for what the grammar forbids.

    previous: the token at the position of the logits; modulus: 0 forbids none.
    """
    if modulus == 0:
        return logits
    forbidden = (np.arange(len(logits)) - previous) % modulus == 0
    # In exact the lowest value is a logit like any other: it may keep some weight.
    lowest = 0 if logits.dtype == np.uint32 else -np.inf
    return np.where(forbidden, logits.dtype.type(lowest), logits)


def draw_token(logits: Array, *, number: int, temperature: float) -> Draw:
    """The token that `number` draws from logits [V]."""
    if temperature == 0.0:
        return greedy(logits)
    if logits.dtype == np.uint32:
        weights = weights_of(logits, temperature)
        return Draw(token_of(weights, (number * int(weights.sum())) >> 32), math.inf)
    return _draw_float(logits, number / 2**32, temperature)


def greedy(logits: Array) -> Draw:
    """The highest logit, the lowest index among equals."""
    token = int(np.argmax(logits))
    if logits.dtype == np.uint32:
        return Draw(token, math.inf)
    second, first = np.partition(logits, -2)[-2:]
    return Draw(token, float(first - second))


def weights_of(logits: Array, temperature: float) -> Array:
    """The integer weights of exact sampling, int64 [V], each at most 65536."""
    q = max(1, round(256 * temperature))
    high = (logits >> 16).astype(np.int64)
    exponents = np.minimum((high.max() - high) // (8 * q), 31)
    return np.asarray(65536 >> exponents)


def token_of(weights: Array, r: int) -> int:
    """The first token whose cumulated weight exceeds r, for 0 <= r < sum of weights [V]."""
    return int(np.searchsorted(np.cumsum(weights), r, side="right"))


def _draw_float(logits: Array, uniform: float, temperature: float) -> Draw:
    return _draw_shares(softmax(logits / temperature), uniform)


def _draw_shares(shares: Array, uniform: float) -> Draw:
    # The last token has no upper boundary: it also takes what rounding leaves above the sum.
    boundaries = np.cumsum(shares)[:-1]
    token = int(np.searchsorted(boundaries, uniform, side="right"))
    # A boundary at 0 is exact: below it stand only tokens without a share.
    near = np.abs(boundaries[boundaries > 0.0] - uniform)
    return Draw(token, float(near.min(initial=np.inf)))


def draft_weights_of(logits: Array, temperature: float) -> Array:
    """q: what a draft is drawn from, int64 or float64 [V]."""
    exact = logits.dtype == np.uint32
    if temperature == 0.0:
        is_greedy = np.arange(len(logits)) == np.argmax(logits)
        return np.asarray(is_greedy, np.int64 if exact else np.float64)
    if exact:
        return np.asarray(weights_of(logits, temperature) >> 12)
    return softmax(logits / temperature)


def draw_draft(weights: Array, number: int) -> Draw:
    """The draft that `number` draws from its weights [V]."""
    if weights.dtype == np.int64:
        return Draw(token_of(weights, (number * int(weights.sum())) >> 32), math.inf)
    return _draw_shares(weights, number / 2**32)


def draw_against(
    logits: Array, draft: int, weights: Array, *, number: int, temperature: float
) -> Draw:
    """The token that `number` draws from logits [V] behind a draft that was drawn from weights [V]:
    the draft itself, or what is recovered.
    """
    if temperature == 0.0 or weights[draft] == 0:
        return draw_token(logits, number=number, temperature=temperature)
    if logits.dtype == np.uint32:
        own, theirs = (list(map(int, x)) for x in (weights_of(logits, temperature), weights))
        mixed = weights_against(
            [w * sum(theirs) for w in own], [q * sum(own) for q in theirs], draft
        )
        mark = (number * int(sum(mixed))) >> 32
        return Draw(next(v for v, upto in enumerate(accumulate(mixed)) if upto > mark), math.inf)
    mixed = weights_against(softmax(logits / temperature).tolist(), weights.tolist(), draft)
    return _draw_shares(np.array(mixed) / sum(mixed), number / 2**32)


def weights_against(a: Sequence[float], b: Sequence[float], draft: int) -> Sequence[float]:
    """m of every token, from two sequences of one sum; integers become as large as they get."""
    if a[draft] >= b[draft]:
        return [int(token == draft) for token in range(len(a))]
    gain = [max(0, x - y) for x, y in zip(a, b, strict=True)]
    rest = [(b[draft] - a[draft]) * g for g in gain]
    return [*rest[:draft], a[draft] * sum(gain), *rest[draft + 1 :]]


def verify(drafts: Sequence[int], draw: Callable[[int], int]) -> tuple[int, ...]:
    """The tokens emitted for drafts after the last committed token.

    `draw(i)` is the token drawn i places behind it, given that the drafts before it were drawn; it
    is asked in order, and never behind a rejected draft.
    """
    emitted: list[int] = []
    for place, draft in enumerate(drafts):
        emitted.append(draw(place))
        if emitted[-1] != draft:
            return tuple(emitted)
    emitted.append(draw(len(drafts)))
    return tuple(emitted)
