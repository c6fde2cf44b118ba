"""Stack walk, operators, and what is not the device's, in C: compiled on first use, loaded once.

Knows Python frames and what it is given of torch.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple, cast

from racegate.order import compiled as order
from racegate.order.interface import Ranges, Stack
from racegate.order.native.compiler import compiled

HERE = Path(__file__).parent
LIBRARY = "libracegate_operators.so"


class StackCalls(NamedTuple):
    """walk: from a frame (None: the caller's) outwards, the program's frames; within: of a stack
    that it gave, the frames of libraries inside the innermost of these
    """

    walk: Callable[[FrameType | None], Stack]
    within: Callable[[Stack], Stack]


def new_walk(learn: Callable[[CodeType], int]) -> StackCalls:
    """What walks stacks. learn: the kind of a code object."""
    return StackCalls(*_library().racegate_frames(learn))


class Operators(NamedTuple):
    """What native/operators.c is given, in its order.

    tensor_types: of tensors that hold bytes themselves; plain_types: of arguments that are passed
        on as they are; item_sizes: by dtype, of those whose values are their bytes
    aliases: those that are known, by what `find_alias` knows them by; empty: makes a tensor on the
        device of a size, strides and dtype
    make: a tensor on the device with the values of one on the host, and its bytes
    """

    tensor_types: tuple[type, ...]
    plain_types: tuple[type, ...]
    item_sizes: dict[object, int]
    aliases: dict[object, object]
    find_alias: Callable[[object], object]
    empty: Callable[..., object]
    make: Callable[[object], tuple[object, Ranges]]


# The result, bytes read, bytes written, and of these those of new tensors
Ran = tuple[object, Ranges, Ranges, Ranges]


def new_run(operators: Operators) -> Callable[..., Ran | None]:
    """What runs the operators that native/operators.c can, called with (plan, arguments, named
    ones, bytes of those that are touched in part by position, whether bytes are to be told).
    """
    return cast("Callable[..., Ran | None]", _library().racegate_operators(operators))


def new_are_elsewhere(
    tensor_types: tuple[type, ...], plain_types: tuple[type, ...], cpu: object
) -> Callable[..., bool]:
    """What says whether no argument of (positional, named) ones is on the device, has its address
    in [low, high) or asks for pinned memory: of a tensor of other types it does not say so.
    """
    context = (tensor_types, plain_types, cpu)
    return cast("Callable[..., bool]", _library().racegate_elsewhere(context))


def build_operators() -> Path:
    """Path of the library, compiled now if it never was. Raises BadInput."""
    shared = order.NATIVE / "ranges.c"
    sources = (*sorted(HERE.glob("*.c")), shared)
    read = (*sources, *order.NATIVE.glob("*.h"))
    return compiled(LIBRARY, sources, read=read, flags=("-I", str(order.NATIVE)))


@cache
def _library() -> ctypes.PyDLL:
    library = ctypes.PyDLL(str(build_operators()))
    for name in ("racegate_frames", "racegate_operators", "racegate_elsewhere"):
        function = getattr(library, name)
        function.restype = ctypes.py_object
        function.argtypes = [ctypes.py_object]
    return library
