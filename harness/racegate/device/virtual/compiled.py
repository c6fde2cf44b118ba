"""The compiled core: what is in C for our own engine. Exact kernels, the same words as the eager
twins, which stay the definition; and the walk of checkpoints.

It came with the wheel, or is compiled on first use and kept, as the order of a program's events is.
Where there is neither library nor compiler, or somebody wants none, Python does all the work: a
machine loses speed and nothing else. It does so too where the Python of a part is not what its C
was written after: what is judged is what stands in the definition.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from pathlib import Path

import numpy as np

import racegate_kernels
from racegate.device.virtual.native.library import core_library, is_shipped
from racegate.order.native.errors import BadInput
from racegate_kernels.backend import EAGER, Backend, Kernel

RACEGATE = Path(__file__).parents[2]
# Set to 0, Python does all the work.
COMPILED_VARIABLE = "RACEGATE_COMPILED"


class CorePart(StrEnum):
    """What stands in C. kernels: exact ones; checkpoints: the walk of their objects and back"""

    KERNELS = "kernels"
    CHECKPOINTS = "checkpoints"


# The Python that they were written after, by `python_digest`. A test says what to write here, when
# a part in C has been compared with what was changed.
WRITTEN_AFTER = {
    CorePart.KERNELS: "15ad780125b80173",
    CorePart.CHECKPOINTS: "6a7e3f9c038a4339",
}

# Kernels that only write to their arguments; the argument that has the shape of what the others
# return, the first by default.
IN_PLACE = frozenset({"scatter_inputs", "rejection_verify", "scripted_draft"})
LIKE = {"gated_delta_update": 2}
CONV_ARRAYS = 8  # of `conv_update`, without the bias, which may stand behind them or be named

# What a function in C says: whether it has done its work, or leaves it to the eager twin.
Twin = Callable[..., bool]
# What checkpoints do in C: walk_from and put_back of `native/walk.c`.
Walk = tuple[Callable[..., None], Callable[..., None]]


@dataclass(frozen=True, slots=True)
class _Loaded:
    """What is in C. reasons: why a part is not, by part; none for one that is"""

    backend: Backend
    walk: Walk | None
    reasons: Mapping[CorePart, str]


def host_backend() -> Backend:
    """The kernels of the virtual device: in C where there are any, else the eager twins."""
    return EAGER if is_refused() else _loaded().backend


def compiled_walk() -> Walk | None:
    """The walk of checkpoints, where it is in C."""
    return None if is_refused() else _loaded().walk


def why_python() -> Mapping[CorePart, str]:
    """Why Python does the work of a part, by part; a part that is in C is not there."""
    if is_refused():
        return dict.fromkeys(CorePart, f"{COMPILED_VARIABLE}=0")
    return _loaded().reasons


def core_origin() -> str:
    """Where the library is from, in words."""
    return "came with the wheel" if is_shipped() else "compiled here"


def is_refused() -> bool:
    """Whether somebody wants nothing in C."""
    return os.environ.get(COMPILED_VARIABLE) == "0"


@contextmanager
def refused_core() -> Iterator[None]:
    """Inside, Python does all the work: what it does is compared with what the core does."""
    before = os.environ.get(COMPILED_VARIABLE)
    os.environ[COMPILED_VARIABLE] = "0"
    try:
        yield
    finally:
        if before is None:
            del os.environ[COMPILED_VARIABLE]
        else:
            os.environ[COMPILED_VARIABLE] = before


def python_digest(part: CorePart) -> str:
    """Of the Python that is the definition of a part."""
    digest = hashlib.sha256()
    for file in _definition(part):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


def _definition(part: CorePart) -> list[Path]:
    match part:
        case CorePart.KERNELS:
            return sorted(Path(racegate_kernels.__path__[0]).glob("*.py"))
        case CorePart.CHECKPOINTS:
            return [RACEGATE / "check" / "checkpoint.py"]


def load_compiled() -> tuple[Backend, Walk]:
    """The eager twins, with those in C in their places, and the walk. Raises BadInput or OSError if
    that cannot be.
    """
    library = ctypes.PyDLL(str(core_library()))
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
        return _Loaded(EAGER, None, dict.fromkeys(CorePart, str(error)))
    changed = [part for part in CorePart if python_digest(part) != WRITTEN_AFTER[part]]
    return _Loaded(
        EAGER if CorePart.KERNELS in changed else backend,
        None if CorePart.CHECKPOINTS in changed else walk,
        dict.fromkeys(changed, "its Python was changed since its C was written"),
    )


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
