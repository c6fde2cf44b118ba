"""NVIDIA's own functions (libdevice), of which Triton's interpreter has none: those of torch's CPU
kernels, so that a compiled region computes what the operators would that it was compiled from.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import torch

from racegate.interpose.native import factories

_Compute = Callable[..., Any]

_PREFIX = "__nv_"
# The plain operation rounds to nearest; of a fast one the value counts, not how exact it is.
_BEFORE, _BEHIND = ("fast_",), ("_rn",)


def _rounded(x: Any) -> Any:
    """To the nearest whole number, halves away from zero."""
    return torch.copysign(torch.floor(torch.abs(x) + 0.5), x)


def _exponent(x: Any) -> Any:
    return torch.frexp(x)[1] - 1


def _fused(x: Any, y: Any, z: Any) -> Any:
    """Without rounding in between, for float32."""
    return (x.double() * y.double() + z.double()).to(x.dtype)


def _bits(x: Any, count: Callable[[int], int]) -> Any:
    """A number of each whole number's bits."""
    mask = (1 << 8 * x.itemsize) - 1
    return factories.tensor([count(int(one) & mask) for one in x.flatten()]).reshape(x.shape)


def _leading_zeros(x: Any) -> Any:
    return _bits(x, lambda one: 8 * x.itemsize - one.bit_length())


# By the name without prefix and type: what torch calls otherwise than NVIDIA, or does not have.
_OTHERS: dict[str, _Compute] = {
    "fabs": torch.abs,
    "llabs": torch.abs,
    "nearbyint": torch.round,
    "rint": torch.round,
    "llrint": torch.round,
    "round": _rounded,
    "llround": _rounded,
    "pow": torch.pow,
    "powi": torch.pow,
    "powif": torch.pow,
    "remainder": lambda x, y: x - torch.round(x / y) * y,
    "fdim": lambda x, y: torch.clamp(x - y, min=0),
    "fma": _fused,
    "logb": lambda x: _exponent(x).to(x.dtype),
    "ilogb": _exponent,
    "scalbn": torch.ldexp,
    "cbrt": lambda x: torch.copysign(torch.abs(x) ** (1 / 3), x),
    "rcbrt": lambda x: torch.copysign(torch.abs(x) ** (-1 / 3), x),
    "exp10": lambda x: torch.pow(10.0, x),
    "sinpi": lambda x: torch.sin(torch.pi * x),
    "cospi": lambda x: torch.cos(torch.pi * x),
    "saturate": lambda x: torch.clamp(x, 0, 1),
    "normcdf": torch.special.ndtr,
    "normcdfinv": torch.special.ndtri,
    "erfcx": torch.special.erfcx,
    "erfcinv": lambda x: torch.erfinv(1 - x),
    "cyl_bessel_i0": torch.special.i0,
    "cyl_bessel_i1": torch.special.i1,
    "j0": torch.special.bessel_j0,
    "j1": torch.special.bessel_j1,
    "y0": torch.special.bessel_y0,
    "y1": torch.special.bessel_y1,
    "dadd": torch.add,
    "fadd": torch.add,
    "dsub": torch.sub,
    "fsub": torch.sub,
    "dmul": torch.mul,
    "fmul": torch.mul,
    "ddiv": torch.div,
    "fdiv": torch.div,
    "fdividef": torch.div,
    "drcp": torch.reciprocal,
    "frcp": torch.reciprocal,
    "dsqrt": torch.sqrt,
    "fsqrt": torch.sqrt,
    "frsqrt": torch.rsqrt,
    "isnand": torch.isnan,
    "isinfd": torch.isinf,
    "isfinited": torch.isfinite,
    "finitef": torch.isfinite,
    "signbitd": torch.signbit,
    "clz": _leading_zeros,
    "clzll": _leading_zeros,
    "popc": lambda x: _bits(x, int.bit_count),
    "popcll": lambda x: _bits(x, int.bit_count),
    "ffs": lambda x: _bits(x, lambda one: (one & -one).bit_length()),
    "ffsll": lambda x: _bits(x, lambda one: (one & -one).bit_length()),
    "float_as_int": lambda x: x.view(torch.int32),
    "int_as_float": lambda x: x.view(torch.float32),
    "double_as_longlong": lambda x: x.view(torch.int64),
    "longlong_as_double": lambda x: x.view(torch.float64),
}
# Torch and NVIDIA call them alike.
_SAME = frozenset({
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "ceil", "copysign", "cos",
    "cosh", "erf", "erfc", "erfinv", "exp", "exp2", "expm1", "floor", "fmod", "hypot", "isnan",
    "isinf", "ldexp", "lgamma", "log", "log10", "log1p", "log2", "nextafter", "rsqrt", "signbit",
    "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
})  # fmt: skip


def compute_of(symbol: str) -> _Compute:
    """What computes a function of libdevice on CPU tensors. symbol: as the library calls it

    Raises NotImplementedError with its name.
    """
    name = symbol.removeprefix(_PREFIX)
    for before in _BEFORE:
        name = name.removeprefix(before)
    for behind in _BEHIND:
        name = name.removesuffix(behind)
    for known in (name, name.removesuffix("f")):
        if known in _OTHERS:
            return _OTHERS[known]
        if known in _SAME:
            return getattr(torch, known)  # type: ignore[no-any-return]
    raise NotImplementedError(f"{symbol} of libdevice")


def compute_extern(interpreter: Any) -> None:
    """interpreter: triton.runtime.interpreter, whose functions of other libraries are computed from
    now on.
    """

    def create(
        self: Any, lib: str, path: str, symbol: str, args: list[Any], kind: Any, is_pure: Any
    ) -> Any:
        tensors = [factories.from_numpy(np.array(arg.data, ndmin=1)) for arg in args]
        made = compute_of(symbol)(*tensors).numpy().reshape(np.shape(args[0].data))
        scalar = kind.scalar
        return interpreter.TensorHandle(
            made.astype(interpreter._get_np_dtype(scalar), copy=False), scalar
        )

    interpreter.InterpreterBuilder.create_extern_elementwise = create


def own_functions(interpreter: Any) -> Any:
    """The module `libdevice` as an interpreted kernel sees it. interpreter: as of compute_extern"""
    return _Libdevice(interpreter)


class _Libdevice:
    def __init__(self, interpreter: Any) -> None:
        self._interpreter = interpreter

    def __getattr__(self, name: str) -> Any:
        from triton.language.extra.cuda import libdevice

        given = {"_semantic": getattr(self._interpreter, "interpreter_semantic", None)}
        if given["_semantic"] is None:  # up to Triton 3.3
            given = {"_builder": self._interpreter.interpreter_builder}
        return partial(getattr(libdevice, name), **given)


def is_libdevice(value: object) -> bool:
    """Whether it is Triton's module of that name, of any kind of GPU or of none."""
    return isinstance(value, ModuleType) and _is_its_name(value.__name__)


def is_of_libdevice(value: object) -> bool:
    """Whether it is a function of that module."""
    return callable(value) and _is_its_name(str(getattr(value, "__module__", "")))


def _is_its_name(name: str) -> bool:
    return name.startswith("triton.language.extra.") and name.endswith(".libdevice")
