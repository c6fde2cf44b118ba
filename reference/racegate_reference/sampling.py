"""Sampling by inverse distribution function, and verification of drafts (DEFINITION section 3)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from racegate_reference.numbers import GOLDEN, Array, mix_word, softmax


class Draw(msgspec.Struct, frozen=True):
    """A token and by how much it was decided.

    margin: for a greedy float decision the distance to the second highest logit, for a random one
    the distance of the uniform number to the nearest boundary of its interval; infinite in exact,
    and for a greedy decision that the grammar leaves no choice.
    """

    token: int
    margin: float


def number_at(seed: int, position: int) -> int:
    """The 32-bit number that draws the token at a position of a request."""
    return mix_word(mix_word(seed) + position * GOLDEN)


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
    # The last token has no upper boundary: it also takes what rounding leaves above the sum.
    boundaries = np.cumsum(softmax(logits / temperature))[:-1]
    token = int(np.searchsorted(boundaries, uniform, side="right"))
    return Draw(token, float(np.min(np.abs(boundaries - uniform))))


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
