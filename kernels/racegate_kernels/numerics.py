"""The small inner functions in which exact (integers modulo 2^32) and float differ.

DEFINITION section 1. In Triton exact quantities are uint32 in registers and their bits are int32
in memory, because torch has no useful uint32 arithmetic; floats are float32 in registers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from racegate_kernels._triton import tl, triton

Array = Any  # NumPy array in the eager twins, torch tensor in the Triton launchers.

MIX_1 = 0x7FEB352D
MIX_2 = 0x846CA68B
GOLDEN = 0x9E3779B9
POSITION = 0x85EBCA6B
DIGEST = 0xC2B2AE35

# As arrays: NumPy takes longer to make one of a number than to calculate with a few words.
_SHIFT_16, _SHIFT_15 = np.array(16, np.uint32), np.array(15, np.uint32)
_MIX_1, _MIX_2 = np.array(MIX_1, np.uint32), np.array(MIX_2, np.uint32)

T_MIX_1 = tl.constexpr(MIX_1)
T_MIX_2 = tl.constexpr(MIX_2)
T_GOLDEN = tl.constexpr(GOLDEN)
T_POSITION = tl.constexpr(POSITION)
T_DIGEST = tl.constexpr(DIGEST)


def is_exact(x: np.ndarray) -> bool:
    """Whether an array holds exact quantities (uint32) rather than floats."""
    return x.dtype == np.uint32


def mix_eager(x: np.ndarray) -> np.ndarray:
    """The bit mixer, a bijection on uint32 arrays of any shape."""
    x = x ^ (x >> _SHIFT_16)
    x *= _MIX_1
    x ^= x >> _SHIFT_15
    x *= _MIX_2
    x ^= x >> _SHIFT_16
    return x


def sigmoid_eager(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)), without overflow for large negative x."""
    return 0.5 * (np.tanh(0.5 * x) + 1.0)


def softplus_eager(x: np.ndarray) -> np.ndarray:
    """log(1 + exp(x)), without overflow."""
    return np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))


def act_eager(x: np.ndarray) -> np.ndarray:
    """mix (exact) or SiLU (float), elementwise."""
    return mix_eager(x) if is_exact(x) else x * sigmoid_eager(x)


@triton.jit
def widen(x, EXACT: tl.constexpr):
    """What was loaded, as the kernels calculate with it: uint32 or float32."""
    return x.to(tl.uint32, bitcast=True) if EXACT else x.to(tl.float32)


@triton.jit
def mix(x):
    """The bit mixer on uint32."""
    x ^= x >> 16
    x *= T_MIX_1
    x ^= x >> 15
    x *= T_MIX_2
    x ^= x >> 16
    return x


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x)), without overflow for large negative x."""
    small = tl.exp(-tl.abs(x))
    return tl.where(x >= 0, 1.0, small) / (1.0 + small)


@triton.jit
def softplus(x):
    """log(1 + exp(x)), without overflow."""
    return tl.maximum(x, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(x)))


@triton.jit
def act(x, EXACT: tl.constexpr):
    """mix (exact) or SiLU (float), elementwise."""
    return mix(x) if EXACT else x * sigmoid(x)


@triton.jit
def gated(y, z, EXACT: tl.constexpr):
    """mix(y + mix(z)) (exact) or y * SiLU(z) (float), elementwise."""
    return mix(y + mix(z)) if EXACT else y * z * sigmoid(z)


@triton.jit
def order_key(x, EXACT: tl.constexpr):
    """int32 in the order of NumPy's argmax: unsigned in exact; in float NaN is highest, -0 is 0."""
    if EXACT:
        key = (x ^ 0x80000000).to(tl.int32, bitcast=True)
    else:
        bits = tl.where(x == 0, 0.0, x).to(tl.int32, bitcast=True)
        key = tl.where(x == x, bits ^ ((bits >> 31) & 0x7FFFFFFF), 0x7FFFFFFF)
    return key
