"""The exact kernels in C: the same words as the eager twins, which stay the definition.

Compiled on first use and kept, as the order of a program's events is. Where there is no compiler,
or somebody wants none, the eager twins do all the work: a machine loses speed and nothing else.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from racegate.order.compiled import NATIVE as ORDER
from racegate.order.native.compiler import compiled
from racegate.order.native.errors import BadInput
from racegate_kernels.backend import EAGER, Backend, Kernel

NATIVE = Path(__file__).parent / "native"
LIBRARY = "libracegate_kernels.so"
SOURCE = NATIVE / "kernels.c"
# Set to 0, nothing is compiled for the virtual device of our own engine.
COMPILED_VARIABLE = "RACEGATE_COMPILED"

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


def compiled_backend() -> Backend:
    """The eager twins, with those in C in their places. Raises BadInput if that cannot be."""
    headers = (*NATIVE.glob("*.h"), *ORDER.glob("*.h"))
    library = ctypes.PyDLL(str(compiled(LIBRARY, (SOURCE,), read=(SOURCE, *headers))))
    library.racegate_exact_kernels.restype = ctypes.py_object
    delta, mamba, conv, attention, linear, norm, gate, inputs, verify, draft = (
        library.racegate_exact_kernels()
    )
    return replace(
        EAGER,
        gated_delta_update=_with_output(delta, EAGER.gated_delta_update, like=2),
        mamba2_update=_with_output(mamba, EAGER.mamba2_update, like=0),
        conv_update=_conv_update(conv),
        paged_attention=_with_output(attention, EAGER.paged_attention, like=0),
        linear=_linear(linear),
        norm=_norm(norm),
        gate=_with_output(gate, EAGER.gate, like=0),
        scatter_inputs=_in_place(inputs, EAGER.scatter_inputs),
        rejection_verify=_in_place(verify, EAGER.rejection_verify),
        scripted_draft=_in_place(draft, EAGER.scripted_draft),
    )


@cache
def _loaded() -> tuple[Backend, str]:
    """The kernels, and why they are the eager twins, if they are."""
    try:
        return compiled_backend(), ""
    except (BadInput, OSError) as error:
        return EAGER, str(error)


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


def _conv_update(twin: Twin) -> Kernel:
    eager = EAGER.conv_update

    def kernel(*arrays: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
        out = np.empty(arrays[0].shape, np.uint32)
        return out if twin(*arrays, bias, out) else eager(*arrays, bias=bias)

    return kernel


def _linear(twin: Twin) -> Kernel:
    eager = EAGER.linear

    def kernel(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
        out = np.empty((len(x), len(weight)), np.uint32)
        return out if twin(x, weight, bias, out) else eager(x, weight, bias)

    return kernel


def _norm(twin: Twin) -> Kernel:
    eager = EAGER.norm

    def kernel(x: np.ndarray, weight: np.ndarray | None = None, *, groups: int = 1) -> np.ndarray:
        out = np.empty(x.shape, np.uint32)
        return out if twin(x, weight, out) else eager(x, weight, groups=groups)

    return kernel
