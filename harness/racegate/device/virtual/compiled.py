"""What is in C for our own engine: exact kernels, the same words as the eager twins, which stay the
definition; and the walk of checkpoints.

Compiled on first use and kept, as the order of a program's events is. Where there is no compiler,
or somebody wants none, Python does all the work: a machine loses speed and nothing else. The eager
twins work too where the Python of a kernel is not what the C was written after: what is judged is
what stands in the definition.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

import racegate_kernels
from racegate.order.compiled import NATIVE as ORDER
from racegate.order.native.compiler import compiled
from racegate.order.native.errors import BadInput
from racegate_kernels.backend import EAGER, Backend, Kernel

NATIVE = Path(__file__).parent / "native"
LIBRARY = "libracegate_engine.so"
SOURCES = (NATIVE / "kernels.c", NATIVE / "walk.c")
# Set to 0, nothing is compiled for our own engine.
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


# What checkpoints do in C: walk_from and put_back of `native/walk.c`.
Walk = tuple[Callable[..., None], Callable[..., None]]


@dataclass(frozen=True, slots=True)
class _Loaded:
    """What is in C. reason: why nothing is, if nothing is"""

    backend: Backend
    walk: Walk | None
    reason: str


def host_backend() -> Backend:
    """The kernels of the virtual device: in C where there are any, else the eager twins."""
    return EAGER if is_refused() else _loaded().backend


def compiled_walk() -> Walk | None:
    """The walk of checkpoints, where it is in C."""
    return None if is_refused() else _loaded().walk


def why_eager() -> str:
    """Why Python does all the work; empty if C does its part."""
    return f"{COMPILED_VARIABLE}=0" if is_refused() else _loaded().reason


def is_refused() -> bool:
    """Whether somebody wants nothing in C."""
    return os.environ.get(COMPILED_VARIABLE) == "0"


def sources_digest() -> str:
    """Of the Python of all kernels."""
    digest = hashlib.sha256()
    for file in sorted(Path(racegate_kernels.__path__[0]).glob("*.py")):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


def load_compiled() -> tuple[Backend, Walk]:
    """The eager twins, with those in C in their places, and the walk. Raises BadInput if that
    cannot be.
    """
    read = (*SOURCES, *NATIVE.glob("*.h"), *ORDER.glob("*.h"))
    library = ctypes.PyDLL(str(compiled(LIBRARY, SOURCES, read=read)))
    for make in (library.racegate_exact_kernels, library.racegate_walk):
        make.restype = ctypes.py_object
    twins: tuple[Twin, ...] = library.racegate_exact_kernels()
    backend = replace(EAGER, **{twin.__name__: _kernel(twin) for twin in twins})
    return backend, library.racegate_walk()


@cache
def _loaded() -> _Loaded:
    try:
        backend, walk = load_compiled()
    except (BadInput, OSError) as error:
        return _Loaded(EAGER, None, str(error))
    if sources_digest() != WRITTEN_AFTER:
        reason = "the Python of a kernel was changed since its twin in C was written"
        return _Loaded(EAGER, walk, reason)
    return _Loaded(backend, walk, "")


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
