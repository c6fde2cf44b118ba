"""The exact kernels in C: the same words as the eager twins, which stay the definition.

Compiled on first use and kept, as the order of a program's events is. Where there is no compiler,
or somebody wants none, the eager twins do all the work: a machine loses speed and nothing else.
They do it too where the Python of a kernel is not what the C was written after: what is judged is
what stands in the definition.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

import racegate_kernels
from racegate.order.compiled import NATIVE as ORDER
from racegate.order.native.compiler import compiled
from racegate.order.native.errors import BadInput
from racegate_kernels.backend import EAGER, Backend, Kernel

NATIVE = Path(__file__).parent / "native"
LIBRARY = "libracegate_kernels.so"
SOURCE = NATIVE / "kernels.c"
# Set to 0, nothing is compiled for the virtual device of our own engine.
COMPILED_VARIABLE = "RACEGATE_COMPILED"

# Kernels that only write to their arguments; the argument that has the shape of what the others
# return, the first by default.
IN_PLACE = frozenset({"scatter_inputs", "rejection_verify", "scripted_draft"})
LIKE = {"gated_delta_update": 2}
CONV_ARRAYS = 8  # of `conv_update`, without the bias, which may stand behind them or be named

# The Python that they were written after, by `sources_digest`. A test says what to write here, when
# the kernels in C have been compared with what was changed.
WRITTEN_AFTER = "ded5f52895fb490f"

# What a function in C says: whether it has done its work, or leaves it to the eager twin.
Twin = Callable[..., bool]


def host_backend() -> Backend:
    """The kernels of the virtual device: in C where there are any, else the eager twins."""
    return EAGER if os.environ.get(COMPILED_VARIABLE) == "0" else _loaded()[0]


def why_eager() -> str:
    """Why the eager twins do all the work; empty if those in C do theirs."""
    if os.environ.get(COMPILED_VARIABLE) == "0":
        return f"{COMPILED_VARIABLE}=0"
    return _loaded()[1]


def sources_digest() -> str:
    """Of the Python of all kernels."""
    digest = hashlib.sha256()
    for file in sorted(Path(racegate_kernels.__path__[0]).glob("*.py")):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


def compiled_backend() -> Backend:
    """The eager twins, with those in C in their places. Raises BadInput if that cannot be."""
    headers = (*NATIVE.glob("*.h"), *ORDER.glob("*.h"))
    library = ctypes.PyDLL(str(compiled(LIBRARY, (SOURCE,), read=(SOURCE, *headers))))
    library.racegate_exact_kernels.restype = ctypes.py_object
    twins: tuple[Twin, ...] = library.racegate_exact_kernels()
    return replace(EAGER, **{twin.__name__: _kernel(twin) for twin in twins})


@cache
def _loaded() -> tuple[Backend, str]:
    """The kernels, and why they are the eager twins, if they are."""
    if sources_digest() != WRITTEN_AFTER:
        return EAGER, "the Python of a kernel was changed since its twin in C was written"
    try:
        return compiled_backend(), ""
    except (BadInput, OSError) as error:
        return EAGER, str(error)


def _kernel(twin: Twin) -> Kernel:
    """What a device calls: the twin in C, and where that leaves it the work, the eager one."""
    name, eager = twin.__name__, getattr(EAGER, twin.__name__)
    if name in IN_PLACE:
        return _in_place(twin, eager)
    own = OPTIONAL.get(name)
    return _with_output(twin, eager, like=LIKE.get(name, 0)) if own is None else own(twin, eager)


def _with_output(twin: Twin, eager: Kernel, *, like: int) -> Kernel:
    """A kernel that returns an array. like: the argument that has its shape"""

    def kernel(*arrays: np.ndarray) -> np.ndarray:
        out = np.empty(arrays[like].shape, np.uint32)
        return out if twin(*arrays, out) else eager(*arrays)

    return kernel


def _in_place(twin: Twin, eager: Kernel) -> Kernel:
    """A kernel that only writes to its arguments."""

    def kernel(*arrays: np.ndarray, **scalars: int) -> None:
        if not twin(*arrays, *scalars.values()):
            eager(*arrays, **scalars)

    return kernel


def _conv_update(twin: Twin, eager: Kernel) -> Kernel:
    def kernel(*arrays: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
        *plain, last = arrays if len(arrays) > CONV_ARRAYS else (*arrays, bias)
        out = np.empty(arrays[0].shape, np.uint32)
        return out if twin(*plain, last, out) else eager(*plain, bias=last)

    return kernel


def _linear(twin: Twin, eager: Kernel) -> Kernel:
    def kernel(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
        out = np.empty((len(x), len(weight)), np.uint32)
        return out if twin(x, weight, bias, out) else eager(x, weight, bias)

    return kernel


def _norm(twin: Twin, eager: Kernel) -> Kernel:
    def kernel(x: np.ndarray, weight: np.ndarray | None = None, *, groups: int = 1) -> np.ndarray:
        out = np.empty(x.shape, np.uint32)
        return out if twin(x, weight, out) else eager(x, weight, groups=groups)

    return kernel


# Kernels with arguments that may be left out.
OPTIONAL = {"conv_update": _conv_update, "linear": _linear, "norm": _norm}
