"""What stands between attention and its output projection: without an output gate a mixer in exact,
nothing in float.
"""

from __future__ import annotations

from racegate_kernels.gate import gate_eager, gate_triton
from racegate_kernels.launch import is_exact_tensor
from racegate_kernels.norm import norm_triton
from racegate_kernels.numerics import Array, is_exact, mix_eager, sigmoid_eager


def attention_gate_eager(o: Array, z: Array | None = None) -> Array:
    """mix(o) in exact, o in float; gated with z mix(o + mix(z)) and o * sigmoid(z).

    Tokens behind the last row like any other.

    o, z: [T, HP] uint32 or float32, read
    returns [T, HP]
    """
    if z is not None:
        return gate_eager(o, z) if is_exact(o) else o * sigmoid_eager(z)
    return mix_eager(o) if is_exact(o) else o


def attention_gate_triton(o: Array, z: Array | None = None) -> Array:
    """The same on torch tensors; the norm of exact quantities is this mixer."""
    if z is not None:
        return gate_triton(o, z) if is_exact_tensor(o) else o * z.sigmoid()
    return norm_triton(o) if is_exact_tensor(o) else o
