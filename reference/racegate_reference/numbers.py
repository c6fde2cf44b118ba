"""Numbers: 32-bit hashing and the two arithmetics of the model (DEFINITION section 1).

The model is written once, against `Numerics`. `Exact` is the ring of integers modulo 2^32, in which
every order of summation gives the same bits; `Float` is IEEE float64.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

GOLDEN = 0x9E3779B9
ROTATION = 0x85EBCA6B
FIRST_FACTOR, SECOND_FACTOR = 0x7FEB352D, 0x846CA68B  # of `mix`
EPSILON = 1e-6


# As arrays: NumPy takes longer to make one of a number than to calculate with a few words.
_SHIFTS = np.array(16, np.uint32), np.array(15, np.uint32)
_FACTORS = np.array(FIRST_FACTOR, np.uint32), np.array(SECOND_FACTOR, np.uint32)


def mix(x: Array) -> Array:
    """A bijection of 32-bit words; elementwise, uint32 -> uint32, at least one axis.

    Arrays wrap around silently; a NumPy scalar would warn, hence the axis.
    """
    wide, narrow = _SHIFTS
    shifted = x >> wide
    mixed: Array = x ^ shifted
    for factor, shift in zip(_FACTORS, (narrow, wide), strict=True):
        np.multiply(mixed, factor, out=mixed)
        np.right_shift(mixed, shift, out=shifted)
        np.bitwise_xor(mixed, shifted, out=mixed)
    return mixed


def mix_word(x: int) -> int:
    """`mix` of one word, given modulo 2^32: NumPy takes ten times as long for so little."""
    word = x & 0xFFFFFFFF
    word ^= word >> 16
    word = word * FIRST_FACTOR & 0xFFFFFFFF
    word ^= word >> 15
    word = word * SECOND_FACTOR & 0xFFFFFFFF
    return word ^ word >> 16


def fnv(text: str) -> int:
    """The 32-bit FNV-1a hash of the UTF-8 bytes."""
    h = 0x811C9DC5
    for byte in text.encode():
        h = ((h ^ byte) * 0x01000193) & 0xFFFFFFFF
    return h


def bits(seed: int, name: str, count: int) -> Array:
    """The first `count` words of the stream `name`, uint32 [count]."""
    start = mix_word(mix_word(seed) ^ fnv(name))
    return mix(np.arange(count, dtype=np.uint32) * GOLDEN + start)


def sigmoid(x: Array) -> Array:
    """1 / (1 + e^-x), without overflow for any x."""
    return np.asarray(np.exp(-np.logaddexp(0.0, -x)))


def softplus(x: Array) -> Array:
    """log(1 + e^x), without overflow for any x."""
    return np.asarray(np.logaddexp(0.0, x))


def softmax(x: Array) -> Array:
    """e^x / sum e^x over the first axis."""
    powers = np.exp(x - np.max(x, axis=0))
    return np.asarray(powers / np.sum(powers, axis=0))


class Numerics(Protocol):
    """The operations in which the two arithmetics differ (DEFINITION sections 1 and 2).

    Any number of leading axes, unless a shape is given. H heads, P head size, N state size.
    """

    @property
    def dtype(self) -> type[np.generic]: ...

    def parameter(self, words: Array, fan_in: int) -> Array:
        """Parameter values from the words of their stream."""

    def norm_weight(self, words: Array, fan_in: int) -> Array:
        """Values that a norm is multiplied with, from the words of their stream."""

    def slowed(self, time_bias: Array, by: float) -> Array:
        """The bias of time steps, moved in float."""

    def norm(self, x: Array) -> Array:
        """Over the last axis."""

    def head_norm(self, x: Array) -> Array:
        """The norm of gated_delta's heads, [..., H, P]."""

    def act(self, x: Array) -> Array: ...

    def gate(self, y: Array, z: Array) -> Array: ...

    def rot(self, x: Array, positions: Array) -> Array:
        """Position encoding of [n, H, P]; positions: [n, R / 2], of each pair of the first R."""

    def attend(self, q: Array, k: Array, v: Array) -> Array:
        """One query [H, P] over n keys and values [n, H, P]: [H, P]."""

    def attended(self, o: Array) -> Array:
        """What attention's output projection is applied to."""

    def output_gate(self, o: Array, z: Array) -> Array:
        """The same where attention's output is gated."""

    def mamba2_rates(self, dt: Array, dt_bias: Array, a_log: Array) -> tuple[Array, Array]:
        """The decay and the input scale of each head, [..., H]."""

    def gated_delta_rates(
        self, b: Array, g: Array, dt_bias: Array, a_log: Array
    ) -> tuple[Array, Array]:
        """The decay and the learning rate beta of each head, [..., H]."""

    def directions(self, q: Array, k: Array) -> tuple[Array, Array]:
        """gated_delta's query and key, [..., H, N]."""


class Exact:
    """Integers modulo 2^32."""

    dtype = np.uint32

    def parameter(self, words: Array, fan_in: int) -> Array:
        return words

    def norm_weight(self, words: Array, fan_in: int) -> Array:
        return words | 1

    def slowed(self, time_bias: Array, by: float) -> Array:
        return time_bias

    def norm(self, x: Array) -> Array:
        return mix(x)

    def head_norm(self, x: Array) -> Array:
        return x

    def act(self, x: Array) -> Array:
        return mix(x)

    def gate(self, y: Array, z: Array) -> Array:
        return mix(y + mix(z))

    def rot(self, x: Array, positions: Array) -> Array:
        turns = np.repeat(positions.astype(np.uint32) * ROTATION, 2, axis=1)
        turning = turns.shape[1]
        encoded = x.copy()
        encoded[..., :turning] = mix(x[..., :turning] + turns[:, None, :])
        return encoded

    def attend(self, q: Array, k: Array, v: Array) -> Array:
        scores = np.einsum("hp,nhp->nh", q, k)
        return np.asarray(np.einsum("nh,nhp->hp", scores, v))

    def attended(self, o: Array) -> Array:
        return mix(o)

    def output_gate(self, o: Array, z: Array) -> Array:
        return self.gate(o, z)

    def mamba2_rates(self, dt: Array, dt_bias: Array, a_log: Array) -> tuple[Array, Array]:
        return mix(dt + dt_bias) | 1, np.ones_like(dt)

    def gated_delta_rates(
        self, b: Array, g: Array, dt_bias: Array, a_log: Array
    ) -> tuple[Array, Array]:
        return mix(g + dt_bias) | 1, 2 * mix(b)

    def directions(self, q: Array, k: Array) -> tuple[Array, Array]:
        return q, k


class Float:
    """IEEE float64."""

    dtype = np.float64

    def parameter(self, words: Array, fan_in: int) -> Array:
        return np.asarray((words / 2**31 - 1.0) * math.sqrt(3 / fan_in))

    def norm_weight(self, words: Array, fan_in: int) -> Array:
        return 1.0 + self.parameter(words, fan_in)

    def slowed(self, time_bias: Array, by: float) -> Array:
        return time_bias + by

    def norm(self, x: Array) -> Array:
        return np.asarray(x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + EPSILON))

    def head_norm(self, x: Array) -> Array:
        return self.norm(x)

    def act(self, x: Array) -> Array:
        return x * sigmoid(x)

    def gate(self, y: Array, z: Array) -> Array:
        return y * z * sigmoid(z)

    def rot(self, x: Array, positions: Array) -> Array:
        turning = 2 * positions.shape[1]
        frequencies = 10000.0 ** (-np.arange(0, turning, 2) / turning)
        angles = positions[:, None, :] * frequencies
        cosine, sine = np.cos(angles), np.sin(angles)
        even, odd = x[..., 0:turning:2], x[..., 1:turning:2]
        turned = x.copy()
        turned[..., 0:turning:2] = even * cosine - odd * sine
        turned[..., 1:turning:2] = even * sine + odd * cosine
        return turned

    def attend(self, q: Array, k: Array, v: Array) -> Array:
        scores = np.einsum("hp,nhp->nh", q, k) / math.sqrt(q.shape[-1])
        return np.asarray(np.einsum("nh,nhp->hp", softmax(scores), v))

    def attended(self, o: Array) -> Array:
        return o

    def output_gate(self, o: Array, z: Array) -> Array:
        return o * sigmoid(z)

    def mamba2_rates(self, dt: Array, dt_bias: Array, a_log: Array) -> tuple[Array, Array]:
        time = softplus(dt + dt_bias)
        return np.exp(-time * np.exp(a_log)), time

    def gated_delta_rates(
        self, b: Array, g: Array, dt_bias: Array, a_log: Array
    ) -> tuple[Array, Array]:
        return np.exp(-np.exp(a_log) * softplus(g + dt_bias)), sigmoid(b)

    def directions(self, q: Array, k: Array) -> tuple[Array, Array]:
        return _unit(q) / math.sqrt(q.shape[-1]), _unit(k)


def _unit(x: Array) -> Array:
    """Each vector of the last axis with length one."""
    return np.asarray(x / np.sqrt(np.sum(x * x, axis=-1, keepdims=True) + EPSILON))
