"""Triton where it is installed; elsewhere stand-ins with which the kernels import but do not run.

Triton has wheels for Linux only, and the eager twins in the same files need nothing from it.

Where a kernel narrows a mask by a scalar condition it says `tl.where(condition, mask, False)`:
`mask & condition` is an integer under Triton's interpreter, which then refuses it as a mask.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

try:
    import triton
    import triton.language as tl
except ImportError:

    def _jit(fn: Any = None, **_options: Any) -> Any:
        return _jit if fn is None else fn

    triton = SimpleNamespace(jit=_jit)
    tl = SimpleNamespace(constexpr=lambda value: value)

__all__ = ["tl", "triton"]
