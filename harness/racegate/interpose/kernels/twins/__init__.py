"""Twins of operators that only CUDA has, or computes for more types than a CPU does: each computes
the same on CPU tensors.
"""

from __future__ import annotations

from racegate.interpose.kernels.twins import attention, layers
from racegate.interpose.kernels.twins.attention import NoTwinError

TWINS = {f"aten::{name}": twin for name, twin in (*attention.TWINS.items(), *layers.TWINS.items())}

__all__ = ["TWINS", "NoTwinError"]
