"""What stands between attention and its output projection: a mixer in exact, nothing in float."""

from __future__ import annotations

from racegate_kernels.launch import is_exact_tensor
from racegate_kernels.norm import norm_triton
from racegate_kernels.numerics import Array, is_exact, mix_eager


def attention_gate_eager(o: Array) -> Array:
    """mix(o) in exact, o in float; tokens behind the last row like any other.

    o: [T, HP] uint32 or float32, read
    returns [T, HP]
    """
    return mix_eager(o) if is_exact(o) else o


def attention_gate_triton(o: Array) -> Array:
    """The same on torch tensors; the norm of exact quantities is this mixer."""
    return norm_triton(o) if is_exact_tensor(o) else o
