"""Triton, imported when the first kernel is launched. The eager twins in the same files need
nothing from it: the virtual device runs without, and so does a system without Triton.

Until then every kernel is a `_Deferred`, and so is every constant. `load` puts what Triton makes of
them in their places, in all modules of this package, before Triton looks at any: a kernel names
others and constants as globals of its module.

Where a kernel narrows a mask by a scalar condition it says `tl.where(condition, mask, False)`:
`mask & condition` is an integer under Triton's interpreter, which then refuses it as a mask.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any


class _Deferred:
    """A kernel or a constant until Triton is there. make: makes the real one"""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._made: Any = None

    @property
    def real(self) -> Any:
        if self._made is None:
            self._made = self._make()
        return self._made

    def __getitem__(self, grid: Any) -> Any:
        """The launch of a kernel, as Triton writes it. Raises ImportError."""
        load()
        return self.real[grid]


def _jit(kernel: Any = None, **options: Any) -> Any:
    """`triton.jit` with or without options."""
    if kernel is None:
        return partial(_jit, **options)
    return _Deferred(lambda: import_module("triton").jit(**options)(kernel))


def _constexpr(value: Any) -> Any:
    """`tl.constexpr` of a module's constant."""
    return _Deferred(lambda: import_module("triton.language").constexpr(value))


triton: Any = SimpleNamespace(jit=_jit)
tl: Any = SimpleNamespace(constexpr=_constexpr)
_STAND_INS = ((triton, "triton"), (tl, "triton.language"))


def load() -> None:
    """Imports Triton, and puts it in the place of what stands for it. Raises ImportError."""
    for name, module in list(sys.modules.items()):
        if not name.startswith(f"{__package__}."):
            continue
        for key, value in list(vars(module).items()):
            if isinstance(value, _Deferred):
                setattr(module, key, value.real)
            for stand_in, real in _STAND_INS:
                if value is stand_in:
                    setattr(module, key, import_module(real))


__all__ = ["load", "tl", "triton"]
