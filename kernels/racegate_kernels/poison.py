"""What memory holds before it is written, after it is freed, and where an index is out of bounds.

Kernels never leave their buffers: an index outside reads poison and writes nothing, on every
backend. A wrong index is then a wrong *value*, visible to the oracles and equal on the CPU and on a
GPU, not a crash.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from racegate_kernels._triton import tl, triton

POISON_I32 = 0x7F7F7F7F
POISON_U32 = 0x7FC0FFEE
POISON_FLOAT = float("nan")

# To NumPy bfloat16 is a void type: it does not know what the bits mean.
_BY_KIND = {"i": POISON_I32, "u": POISON_U32, "f": POISON_FLOAT, "V": POISON_FLOAT}

T_POISON_I32 = tl.constexpr(POISON_I32)
T_POISON_U32 = tl.constexpr(POISON_U32)


def poison_of(dtype: DTypeLike) -> float:
    """The poison value of a NumPy dtype."""
    return _BY_KIND[np.dtype(dtype).kind]


@triton.jit
def poisoned(x, m_inside, EXACT: tl.constexpr):
    """x (uint32 or float32) where its index was inside the buffer, poison elsewhere."""
    return tl.where(m_inside, x, T_POISON_U32 if EXACT else float("nan"))


@triton.jit
def load_or_poison(p, o, size):
    """Elements o of an int32 vector of this size; poison for an index outside."""
    return tl.load(p + o, mask=(o >= 0) & (o < size), other=T_POISON_I32)
